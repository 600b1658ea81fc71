"""The contract of a backend: test classes that run once for each backend.

To test a backend, subclass `LogContract` and define the fixture ``new_backend`` and the method ``reopen`` of
`ContractBase`.
"""

from tests.contract.appending import AppendContract
from tests.contract.blind import BlindContract
from tests.contract.claiming import RowClaimContract
from tests.contract.continuing import ContinueContract
from tests.contract.crashing import CrashContract
from tests.contract.expanding import ExpandContract
from tests.contract.expecting import ExpectContract
from tests.contract.forgetting import ForgetContract
from tests.contract.keying import KeyClaimContract
from tests.contract.loading import LoadContract
from tests.contract.locking import LoadLockContract
from tests.contract.placing import PlaceContract
from tests.contract.racing import RaceContract
from tests.contract.reading import ReadContract
from tests.contract.refusing import RefuseContract
from tests.contract.registry import RegistryContract
from tests.contract.streaming import StreamContract
from tests.contract.trimming import TrimContract
from tests.contract.whole import WholeContract
from tests.contract.whole_at_once import WholeAtOnceContract
from tests.contract.whole_streaming import WholeStreamContract

__all__ = ["JobContract", "LogContract", "StepContract", "StoreContract"]


class StoreContract(AppendContract, ReadContract, TrimContract, RegistryContract, LoadLockContract, RaceContract):
    """Chunks, reads, trims, registry entries and locks, also with concurrent writers."""


class StepContract(StoreContract, ExpandContract, BlindContract, ForgetContract, PlaceContract):
    """Each operation of a backend, also with concurrent writers."""


class JobContract(
    LoadContract,
    RefuseContract,
    ExpectContract,
    RowClaimContract,
    KeyClaimContract,
    CrashContract,
    StreamContract,
    ContinueContract,
):
    """Jobs, which consist of these operations."""


class LogContract(StepContract, JobContract, WholeContract, WholeAtOnceContract, WholeStreamContract):
    """The complete contract."""
