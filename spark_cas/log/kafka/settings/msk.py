"""Translate Amazon's IAM login for Java's client: ``AWS_MSK_IAM`` is OAUTHBEARER with a token of AWS's library.

Spark users set the mechanism, the login module and the callback handler of aws-msk-iam-auth.
"""

import os
import re
from collections.abc import Mapping
from urllib.parse import urlencode

from spark_cas.core.errors import OptionError

MECHANISM = "AWS_MSK_IAM"
LOGIN_MODULE = "IAMLoginModule"
PACKAGE = "software.amazon.msk.auth.iam."
SHADED = "shadedmskiam."
"""The prefix of Amazon's class names in Databricks."""

_PROVIDER = "spark_cas.log.kafka.settings.msk:token"
_ARGUMENTS = {"awsProfileName": "profile", "awsRoleArn": "role", "awsRoleSessionName": "session"}
"""The options of the login module, and the arguments of `spark_cas.log.kafka.settings.msk.token`."""
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com", re.IGNORECASE)


def msk_provider(options: Mapping[str, str], servers: str) -> str:
    """Return the token provider, with its arguments, for the options of the login module and the brokers' addresses.

    Raises:
        OptionError: An option has no equivalent.
    """
    if options.keys() - _ARGUMENTS.keys() or not all(options.values()):
        raise OptionError(
            f"option kafka.sasl.jaas.config may give the {LOGIN_MODULE} {', '.join(_ARGUMENTS)}, and gives it "
            "something else or an empty value. Write that into an AWS profile, and name it as awsProfileName."
        )
    if {"awsProfileName", "awsRoleArn"} <= options.keys():
        raise OptionError(
            "option kafka.sasl.jaas.config gives awsProfileName and awsRoleArn. Give one of them: a profile may have "
            "a role_arn itself."
        )
    arguments = {_ARGUMENTS[name]: value for name, value in options.items()}
    region = _REGION.search(servers)
    if region is not None:
        arguments["region"] = region[1].lower()
    return f"{_PROVIDER}?{urlencode(sorted(arguments.items()))}"


def token(region: str = "", profile: str = "", role: str = "", session: str = "") -> tuple[str, float]:
    """Return a token of this machine's AWS credentials, and its expiry time in seconds since 1970.

    Amazon MSK accepts a signed URL as a token. AWS's own library signs it: the extra ``spark-cas[msk]``.

    Args:
        region: The region of the cluster. The default is the environment variable ``AWS_REGION`` or
            ``AWS_DEFAULT_REGION``, or the region of the profile.
        profile: A profile of the AWS configuration. Empty for the default credentials.
        role: The ARN of a role to assume. Empty for none.
        session: The name of the session of that role.

    Raises:
        OptionError: The library is missing, or there is no region or no credentials.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer  # noqa: N813, PLC0415 - an extra
        from botocore.credentials import CredentialProvider, Credentials  # noqa: PLC0415 - it comes with the extra
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above
        from botocore.session import Session  # noqa: PLC0415 - as above
    except ImportError:
        raise OptionError(
            "kafka.sasl.mechanism AWS_MSK_IAM needs AWS's signer library, for the driver and every worker: "
            "pip install 'spark-cas[msk]'."
        ) from None

    class AssumedRole(CredentialProvider):  # type: ignore[misc]
        """Credentials of the role. The signer's own request for them needs a region in the AWS configuration."""

        def load(self) -> Credentials:
            sts = own.create_client("sts", region_name=region)
            assumed = sts.assume_role(RoleArn=role, RoleSessionName=session or "spark-cas")["Credentials"]
            return Credentials(assumed["AccessKeyId"], assumed["SecretAccessKey"], assumed["SessionToken"])

    try:
        own = Session(profile=profile or None)
        region = region or os.environ.get("AWS_REGION") or own.get_config_variable("region") or ""
        if not region:
            raise OptionError(
                "kafka.sasl.mechanism AWS_MSK_IAM needs the region of the cluster, and the brokers' host names do "
                "not contain it. Set the environment variable AWS_REGION for the driver and every worker."
            )
        if role:
            text, expiry_ms = signer.generate_auth_token_from_credentials_provider(region, AssumedRole())
        elif own.get_credentials() is None:
            raise OptionError(
                "kafka.sasl.mechanism AWS_MSK_IAM found no AWS credentials on this machine. The driver and every "
                "worker need them: a role of the instance, environment variables, or a profile."
            )
        elif profile:
            text, expiry_ms = signer.generate_auth_token_from_profile(region, profile)
        else:
            text, expiry_ms = signer.generate_auth_token(region)
    except (BotoCoreError, ClientError) as error:
        raise OptionError(
            f"kafka.sasl.mechanism AWS_MSK_IAM: AWS's library could not sign a token ({type(error).__name__}). Check "
            "the credentials, the profile and the role of the driver and the workers."
        ) from None
    return text, expiry_ms / 1000
