import itertools

import pytest

from spark_cas.core.put_reply import Found, PutReply, PutVerdict, judge_put

VERDICTS = {
    Found.OURS: PutVerdict.RESOLVED,
    Found.SAME_JOB: PutVerdict.FENCED,
    Found.NEWER_LAYOUT: PutVerdict.LAYOUT_CHANGED,
    Found.OTHER: PutVerdict.CONFLICT,
    Found.ABSENT: PutVerdict.AGAIN,
    Found.UNREADABLE: PutVerdict.AGAIN,
}


@pytest.mark.parametrize(("reply", "found"), list(itertools.product(PutReply, Found)))
def test_put_is_resolved_by_the_stored_object_unless_created(reply: PutReply, found: Found):
    expected = PutVerdict.APPENDED if reply is PutReply.CREATED else VERDICTS[found]
    assert judge_put(reply, found) is expected
