"""The contract of a backend: test classes that run once for each backend.

To test a backend, subclass `LogContract` and define the fixture ``new_backend`` and the method ``reopen`` of
`ContractBase`.
"""

from spark_cas.testing.contract.appending import AppendContract
from spark_cas.testing.contract.blind import BlindContract
from spark_cas.testing.contract.claiming import RowClaimContract
from spark_cas.testing.contract.continuing import ContinueContract
from spark_cas.testing.contract.crashing import CrashContract
from spark_cas.testing.contract.expanding import ExpandContract
from spark_cas.testing.contract.expecting import ExpectContract
from spark_cas.testing.contract.forgetting import ForgetContract
from spark_cas.testing.contract.granting import GrantContract
from spark_cas.testing.contract.keying import KeyClaimContract
from spark_cas.testing.contract.loading import LoadContract
from spark_cas.testing.contract.placing import PlaceContract
from spark_cas.testing.contract.racing import RaceContract
from spark_cas.testing.contract.reading import ReadContract
from spark_cas.testing.contract.refusing import RefuseContract
from spark_cas.testing.contract.registry import RegistryContract
from spark_cas.testing.contract.streaming import StreamContract
from spark_cas.testing.contract.trimming import TrimContract
from spark_cas.testing.contract.whole import WholeContract
from spark_cas.testing.contract.whole_at_once import WholeAtOnceContract
from spark_cas.testing.contract.whole_streaming import WholeStreamContract

__all__ = ["JobContract", "LogContract", "StepContract", "StoreContract"]


class StoreContract(AppendContract, ReadContract, TrimContract, RegistryContract, GrantContract, RaceContract):
    """Chunks, reads, trims, registry entries and grants, also with concurrent writers."""


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
