"""The rights of each task, as the tables of the documentation list them."""

import re

from spark_cas.log.kafka.client.client_errors import Right, on_groups, on_ids, on_topic
from tests.pages import ROOT

KAFKA, DOCTOR = "docs/kafka.md", "docs/doctor.md"
READ = "read"
FOREIGN = "foreign"
"""The transactional id of another producer."""

_TABLE = re.compile(r"^\| task \| \w+ \|\n\| --- \| --- \|\n((?:\|.+\|\n)+)", re.MULTILINE)
_OPERATIONS = "(?:`[A-Z][A-Za-z]+`(?:, | and )?)+"
_CLAUSE = re.compile(rf"({_OPERATIONS}) on (.+?)(?=,? (?:and )?{_OPERATIONS} on |;|$)")
_BETWEEN_PLACES = re.compile(r", (?:and )?(?:on )?| and (?:on )?")


def tasks(page: str) -> dict[str, str]:
    """Return the tasks of a page, each with the text of its rights."""
    [rows] = _TABLE.findall((ROOT / page).read_text())
    return dict(row.strip("| ").split(" | ") for row in rows.splitlines())


def documented(page: str, task: str, topic: str, prefix: str) -> list[Right]:
    """Return the rights of a task, in the order of its text.

    Args:
        page: The path of the page.
        task: The first column of the table, or a part of it that only this row has.
        topic: The topic of the log.
        prefix: The prefix of the log.
    """
    of_page = tasks(page)
    [text] = [of_page[task]] if task in of_page else [text for name, text in of_page.items() if task in name]
    registry, layouts = f"{prefix}.registry", f"{prefix}.layouts"
    topics = {
        "the topic": [topic],
        "the topics": [topic, registry, layouts],
        "both registry topics": [registry, layouts],
        "`spark-cas.registry`": [registry],
        "`spark-cas.layouts`": [layouts],
        "the topic `__transaction_state`": ["__transaction_state"],
        "`__transaction_state`": ["__transaction_state"],
        "`__consumer_offsets`": ["__consumer_offsets"],
    }

    def rights_on(operation: str, place: str) -> list[Right]:
        others = {
            "the consumer groups": on_groups(operation, prefix),
            "the transactional ids": on_ids(operation, prefix),
            "all transactional ids": Right(operation, "transactional-id", "*"),
            "the transactional id": Right(operation, "transactional-id", FOREIGN),
            "the cluster": Right(operation, "cluster", "kafka-cluster"),
        }
        return [others[place]] if place in others else [on_topic(operation, each) for each in topics[place]]

    result = documented(page, READ, topic, prefix) if text.startswith("also ") else []
    for operations, places in _CLAUSE.findall(text):
        for operation in re.findall("`(.+?)`", operations):
            result += [right for place in _BETWEEN_PLACES.split(places) for right in rights_on(operation, place)]
    return result
