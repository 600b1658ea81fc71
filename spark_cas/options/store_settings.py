"""The allowlist of object-store settings that can be set as ``store.<name>``.

It excludes the bucket and container, because the address names them. It excludes ``conditional_put`` and
``copy_if_not_exists``, because the guarantees require put-if-absent. It excludes ``use_azure_cli``, which runs a
program on every worker, and ``credential_type``. It excludes all settings that weaken TLS except ``allow_http``,
which test servers need.
"""

from spark_cas.log.spec import RETRY_TIMEOUT

_AWS = (
    "access_key_id",
    "checksum_algorithm",
    "container_authorization_token_file",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "default_region",
    "disable_tagging",
    "endpoint",
    "endpoint_url",
    "imdsv1_fallback",
    "metadata_endpoint",
    "region",
    "request_payer",
    "role_arn",
    "role_session_name",
    "s3_express",
    "secret_access_key",
    "server_side_encryption",
    "session_token",
    "skip_signature",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
    "sse_kms_key_id",
    "unsigned_payload",
    "virtual_hosted_style_request",
    "web_identity_token_file",
)

_AZURE_STORAGE = (
    "account_key",
    "account_name",
    "authority_host",
    "authority_id",
    "client_id",
    "client_secret",
    "encryption_key",
    "endpoint",
    "sas_key",
    "sas_token",
    "tenant_id",
    "token",
    "use_emulator",
)

_AZURE = (
    "client_id",
    "client_secret",
    "disable_tagging",
    "fabric_cluster_identifier",
    "fabric_session_token",
    "fabric_token_service_url",
    "fabric_workload_host",
    "federated_token_file",
    "msi_endpoint",
    "msi_resource_id",
    "object_id",
    "skip_signature",
    "tenant_id",
    "use_fabric_endpoint",
)

_GOOGLE = (
    "application_credentials",
    "base_url",
    "bearer_token",
    "service_account",
    "service_account_key",
    "skip_signature",
)

PREFIX = "store."

AWS = frozenset({*_AWS, *(f"aws_{name}" for name in _AWS)})
AZURE = frozenset(
    {
        *_AZURE,
        *_AZURE_STORAGE,
        *(f"azure_{name}" for name in _AZURE),
        *(f"azure_storage_{name}" for name in _AZURE_STORAGE),
    }
)
GOOGLE = frozenset({*_GOOGLE, *(f"google_{name}" for name in _GOOGLE)})

STORE_OPTIONS = AWS | AZURE | GOOGLE | {"allow_http", RETRY_TIMEOUT}
"""The names without prefix, in lower case."""
