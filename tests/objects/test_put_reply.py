import itertools

import pytest

from spark_cas.log.objects.store_replies import Existing, PutReply, PutVerdict, judge_put

VERDICTS = {
    Existing.OURS: PutVerdict.RESOLVED,
    Existing.SAME_JOB: PutVerdict.FENCED,
    Existing.NEWER_LAYOUT: PutVerdict.LAYOUT_CHANGED,
    Existing.OTHER: PutVerdict.CONFLICT,
    Existing.ABSENT: PutVerdict.AGAIN,
    Existing.UNREADABLE: PutVerdict.AGAIN,
}


@pytest.mark.parametrize(("reply", "found"), list(itertools.product(PutReply, Existing)))
def test_put_is_resolved_by_the_stored_object_unless_created(reply: PutReply, found: Existing):
    expected = PutVerdict.APPENDED if reply is PutReply.CREATED else VERDICTS[found]
    assert judge_put(reply, found) is expected
