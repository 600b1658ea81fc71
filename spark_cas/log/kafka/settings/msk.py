"""Translate Amazon's IAM login for Java's client: ``AWS_MSK_IAM`` is OAUTHBEARER with a token of AWS's library.

Spark users set the mechanism, the login module and the callback handler of aws-msk-iam-auth.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from spark_cas.core.errors import OptionError

MECHANISM = "AWS_MSK_IAM"
LOGIN_MODULE = "IAMLoginModule"
PACKAGE = "software.amazon.msk.auth.iam."
SHADED = "shadedmskiam."
"""The prefix of Amazon's class names in Databricks."""

_PROVIDER = "spark_cas.log.kafka.client.msk_iam:token"
_ARGUMENTS = {"awsProfileName": "profile", "awsRoleArn": "role", "awsRoleSessionName": "session"}
"""The options of the login module, and the arguments of `spark_cas.log.kafka.client.msk_iam.token`."""
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
