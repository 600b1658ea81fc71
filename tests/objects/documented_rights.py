"""Users of a server with the S3 API, with exactly the rights that the page on object stores lists."""

import json
import re
from collections.abc import Mapping
from typing import Any

import boto3

from spark_cas.log.spec import LogSpec
from tests.objects.servers import S3_OPTIONS, Served
from tests.pages import ROOT

Rights = Mapping[str, list[str]]
"""The resources of each action."""

_ROLE = re.compile(r"^\| (reader|writer|cleanup): .+ \| (also )?.+ \| (.+) \|$", re.MULTILINE)
_RIGHT = re.compile(r"`(s3:\w+)`(?: on `(.+?)`)?")
_OBJECTS, _BUCKET = "bucket/logs/flights/*", "bucket"


class Users:
    """The users of a moto server, which checks the signature and the rights of each request.

    moto checks actions and resources. It ignores the condition ``s3:prefix`` of ``s3:ListBucket``, and checks
    ``s3:DeleteObject`` for the bucket instead of the object.
    """

    UNCHECKED = 4
    """The requests before moto checks any: they create the bucket, and a first user with all rights."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._iam = self._client(S3_OPTIONS)
        self._number = 0
        self.owner = self._new({"*": ["*"]})
        self._iam = self._client(self.owner)

    def _client(self, options: Mapping[str, str]) -> Any:
        keys = {name: options[name] for name in ("aws_access_key_id", "aws_secret_access_key")}
        return boto3.client("iam", endpoint_url=self.served.endpoint, region_name="us-east-1", **keys)

    def _new(self, rights: Rights) -> dict[str, str]:
        """Create a user. Return the options with the keys."""
        self._number += 1
        name = f"user-{self._number}"
        statements = [{"Effect": "Allow", "Action": each, "Resource": on} for each, on in rights.items()]
        self._iam.create_user(UserName=name)
        key = self._iam.create_access_key(UserName=name)["AccessKey"]
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self._iam.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=policy)
        return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}

    def as_user(self, spec: LogSpec, rights: Rights) -> LogSpec:
        """Return the spec of the same log for a new user with these rights."""
        return LogSpec.parse(spec.url, dict(spec.store_options) | self._new(rights))


def documented_rights(role: str, spec: LogSpec) -> dict[str, list[str]]:
    """Return the rights that the page lists for a role, for the address of a log."""
    roles: dict[str, dict[str, str]] = {}
    rights: dict[str, str] = {}
    for name, also, text in _ROLE.findall((ROOT / "docs/object-store.md").read_text()):
        rights = {**(rights if also else {}), **{action: on or _OBJECTS for action, on in _RIGHT.findall(text)}}
        roles[name] = rights
    address = spec.url.removeprefix("s3://")
    bucket = address.partition("/")[0]
    resources = {_OBJECTS: f"{address}/*", _BUCKET: bucket}
    result = {action: [f"arn:aws:s3:::{resources[on]}"] for action, on in roles[role].items()}
    if "s3:DeleteObject" in result:
        result["s3:DeleteObject"].append(f"arn:aws:s3:::{bucket}")
    return result
