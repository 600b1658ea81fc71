------------------------------- MODULE append -------------------------------
(***************************************************************************)
(* The append protocol on Kafka: decisions 0001, 0002, 0005 and 0006.      *)
(*                                                                         *)
(* The brokers store records, transactions and ledger entries. Two jobs    *)
(* have runs, which append the same chunks. A job is a load of one         *)
(* partition or an atomic load. Another producer appends without this      *)
(* protocol, a reader reads the ends of the partitions, and an expansion   *)
(* ends the old layout. Each step is atomic, and any process may be slow,  *)
(* so a fenced run resumes at any later time. `Off` has the checks that a  *)
(* planted defect leaves out. The comment of each check names its Python.  *)
(*                                                                         *)
(* Simplifications:                                                        *)
(* - Leaders and coordinators are current, and lose no record. The proofs  *)
(*   of decision 0002 and `Truncated` have no counterpart.                 *)
(* - An epoch of a transactional id is the name of its newest producer.    *)
(*   Brokers reject each request of a fenced producer (KIP-890).           *)
(* - A barrier is one moment without an open transaction. An abort, with   *)
(*   its markers, is one step. A commit is several.                        *)
(* - The ledger entry joins the transaction with the first record, that of *)
(*   an atomic load with the commit. Its offsets are final at the commit.  *)
(* - Rows have no keys, digests or expected offsets of their own. No       *)
(*   chunk is empty. There is no trim, compaction, expiry or `spark-cas    *)
(*   abort`. All runs have the same input.                                 *)
(* - A per-partition job writes one partition, and pins its plan once.     *)
(* - No task resumes after `Fenced` or an error: it is a further run.      *)
(* - All partitions get their threshold at one moment, and the partitions  *)
(*   are added later. Another tool adds none.                              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    RunsA, RunsB,  \* the runs of the jobs "a" and "b"
    Parts,         \* the partitions, from 0
    Whole,         \* the jobs that are atomic loads
    ModesA, ModesB,  \* the possible modes of a job: "end" expects an offset, "none" does not
    Chunks, Rows,  \* chunks of a job in a partition, and records of a chunk
    Foreign,       \* records of the other producer
    Faults,        \* lost requests and replies, timeouts and closed producers, together
    Tries,         \* retries of a run
    Reading,       \* whether there is a reader
    Expanding,     \* whether there is an expansion
    Off            \* the checks that are left out

VARIABLES
    log,     \* of each partition, the entries [by, chunk, row, st]; the offset is the index - 1
    txn,     \* of each transactional id, its transaction
    owner,   \* of each transactional id, the run with the newest producer
    ledger,  \* of each job, its committed entry
    plan,    \* of each job, its expected offsets
    mode,    \* of each job, its mode
    ws,      \* of each run, its state
    other,   \* how many records the other producer may append
    faults,  \* how many faults may happen
    rd,      \* the reader
    xp       \* the expansion

vars == <<log, txn, owner, ledger, plan, mode, ws, other, faults, rd, xp>>
brokers == <<log, txn, owner, ledger>>

Runs == RunsA \cup RunsB
Jobs == {"a", "b"}
Job(w) == IF w \in RunsA THEN "a" ELSE "b"
Home == CHOOSE p \in Parts : \A q \in Parts : q <= p
PartsOf(j) == IF j \in Whole THEN Parts ELSE {Home}
First(w) == IF Job(w) \in Whole THEN 0 ELSE Home
Checks(c) == c \notin Off

(* KafkaSpec.id_of_partition, id_of_atomic_load. Without "fence", each run has an id of its own. *)
IdOf(j) == CASE j \in Whole -> IF j = "a" THEN "whole/a" ELSE "whole/b"
             [] mode[j] = "none" -> IF j = "a" THEN "0/a" ELSE "0/b"
             [] OTHER -> "0"
Id(w) == IF Checks("fence") THEN IdOf(Job(w)) ELSE w
Ids ==
    {"other"} \cup (IF Checks("fence") THEN {} ELSE Runs)
    \cup {IF j = "a" THEN "whole/a" ELSE "whole/b" : j \in Whole}
    \cup (IF "none" \in ModesA \cup ModesB THEN {"0/a", "0/b"} ELSE {}) \cup {"0"}
JobsOf(id) == {j \in Jobs : IdOf(j) = id}

None == [job |-> "-", n |-> 0, end |-> <<>>]
Idle == [st |-> "none", todo |-> {}, entry |-> None]
Group == -1  \* the partition of a transaction that has its ledger entry
Marker == [by |-> "marker", chunk |-> 0, row |-> 0, st |-> "marker"]

High(p) == Len(log[p])
Open(p) == {i \in 1..High(p) : log[p][i].st = "open"}
Stable(p) == IF Open(p) = {} THEN High(p) ELSE (CHOOSE i \in Open(p) : \A k \in Open(p) : i <= k) - 1
Visible(p, i) == log[p][i].st = "yes"
Taken(p, from, end) == \E i \in (from + 1)..end : Visible(p, i)
(* Whether a read of the ledger with stable offsets has to wait. *)
Pending(j) == Checks("stable offsets") /\ \E id \in Ids : txn[id].entry.job = j

Refused == {"conflict", "fenced", "layout", "failed"}
Ended == Refused \cup {"done"}

Start == [pc |-> "plan", claimed |-> FALSE, known |-> 0, chunk |-> 0, at |-> 0, expect |-> <<>>,
          end |-> 0, base |-> [p \in Parts |-> 0], sent |-> 0, tight |-> TRUE, tries |-> 0, next |-> "send", ok |-> {}]

Init ==
    /\ log = [p \in Parts |-> <<>>]
    /\ txn = [id \in Ids |-> Idle]
    /\ owner = [id \in Ids |-> "nobody"]
    /\ ledger = [j \in Jobs |-> [None EXCEPT !.job = j]]
    /\ plan = [j \in Jobs |-> <<>>]
    /\ mode \in {m \in [Jobs -> ModesA \cup ModesB] : m["a"] \in ModesA /\ m["b"] \in ModesB}
    /\ ws = [w \in Runs |-> Start]
    /\ other = Foreign
    /\ faults = Faults
    /\ rd = [pc |-> IF Reading THEN "start" ELSE "off", before |-> <<>>, target |-> <<>>, ends |-> <<>>]
    /\ xp = [pc |-> IF Expanding THEN "start" ELSE "off", todo |-> {}, ends |-> <<>>]

-----------------------------------------------------------------------------
(* The brokers. *)

Began(id, entry) == [txn EXCEPT ![id].st = "open", ![id].entry = entry]

IsOf(id, p, i) == log[p][i].st = "open" /\
    IF id = "other" THEN log[p][i].by = "other" ELSE log[p][i].by \in Runs /\ Id(log[p][i].by) = id

(* The partitions with records of the open transaction of an id. *)
Touched(id) == {p \in Parts : \E i \in 1..High(p) : IsOf(id, p, i)}

(* A partition after the marker of a transaction. *)
Marked(id, p, st) == Append([i \in 1..High(p) |-> IF IsOf(id, p, i) THEN [log[p][i] EXCEPT !.st = st] ELSE log[p][i]],
                            Marker)

(* The coordinator decides to commit, and then writes one marker after the other. *)
Committing(id, entry) ==
    txn' = [txn EXCEPT ![id] = [st |-> "commit", entry |-> entry,
                                todo |-> Touched(id) \cup (IF entry = None THEN {} ELSE {Group})]]

WriteMarker(id, to) ==
    /\ to \in txn[id].todo
    /\ LET todo == txn[id].todo \ {to} IN
       txn' = [txn EXCEPT ![id] = [st |-> IF todo = {} THEN "none" ELSE "commit", todo |-> todo,
                                   entry |-> IF to = Group THEN None ELSE @.entry]]
    /\ IF to = Group THEN ledger' = [ledger EXCEPT ![txn[id].entry.job] = txn[id].entry] /\ UNCHANGED log
       ELSE log' = [log EXCEPT ![to] = Marked(id, to, "yes")] /\ UNCHANGED ledger
    /\ UNCHANGED <<owner, plan, mode, ws, other, faults, rd, xp>>

(* An abort is one step: until then, the transaction is open. *)
Aborting(id) ==
    /\ txn' = [txn EXCEPT ![id] = Idle]
    /\ log' = [p \in Parts |-> IF p \in Touched(id) THEN Marked(id, p, "no") ELSE log[p]]

(* InitProducerId: it fences the newest producer and aborts its transaction, or waits for the markers of a commit. *)
Fencing(id, new) ==
    /\ txn[id].st # "commit"
    /\ Aborting(id)
    /\ owner' = [owner EXCEPT ![id] = new]

(* The coordinator aborts a transaction that is open for too long. *)
TimeOut(id) ==
    /\ txn[id].st = "open" /\ id # "other"
    /\ IF \E w \in Runs : owner[id] = w /\ ws[w].pc \notin Ended
       THEN faults > 0 /\ faults' = faults - 1
       ELSE UNCHANGED faults
    /\ Fencing(id, "nobody")
    /\ UNCHANGED <<ledger, plan, mode, ws, other, rd, xp>>

-----------------------------------------------------------------------------
(* The other producer: one record without a transaction, or one that it commits or aborts. *)

OtherSends(p, st) ==
    /\ other > 0 /\ txn["other"].st = "none"
    /\ other' = other - 1
    /\ log' = [log EXCEPT ![p] = Append(@, [by |-> "other", chunk |-> 0, row |-> 0, st |-> st])]
    /\ txn' = IF st = "open" THEN Began("other", None) ELSE txn
    /\ UNCHANGED <<owner, ledger, plan, mode, ws, faults, rd, xp>>

OtherEnds ==
    /\ txn["other"].st = "open"
    /\ Aborting("other") \/ (Committing("other", None) /\ UNCHANGED log)
    /\ UNCHANGED <<owner, ledger, plan, mode, ws, other, faults, rd, xp>>

-----------------------------------------------------------------------------
(* The runs. *)

At(w, pc) == ws[w].pc = pc
(* An ended run keeps only the values that the properties read. *)
Becomes(w, state) == ws' = [ws EXCEPT ![w] =
    IF state.pc \notin Ended THEN state
    ELSE [Start EXCEPT !.pc = state.pc, !.chunk = state.chunk, !.ok = state.ok,
                       !.expect = IF state.pc = "conflict" THEN state.expect ELSE <<>>]]
Moves(w, pc) == Becomes(w, [ws[w] EXCEPT !.pc = pc])
Others == UNCHANGED <<plan, mode, other, faults, rd, xp>>
Checked(w) == mode[Job(w)] = "end"
IsWhole(w) == Job(w) \in Whole
Holds(w) == owner[Id(w)] = w
Count(w) == ledger[Job(w)].n
Resume(w) == IF ~Checked(w) THEN [p \in Parts |-> 0]
             ELSE IF Count(w) = 0 THEN plan[Job(w)] ELSE ledger[Job(w)].end

(* spark_cas.log.load.planning: the first run records the plan, with the ends of the partitions. *)
Pin(w) ==
    /\ At(w, "plan")
    /\ IF plan[Job(w)] # <<>> THEN UNCHANGED plan
       ELSE /\ Checked(w) => \A p \in Parts : Stable(p) = High(p)
            /\ plan' = [plan EXCEPT ![Job(w)] = [p \in Parts |-> IF Checked(w) THEN High(p) ELSE 0]]
    /\ Moves(w, IF IsWhole(w) THEN "init" ELSE "peek")
    /\ UNCHANGED <<brokers, mode, other, faults, rd, xp>>

(* PartitionWriter._claim and _ready, before the fence. *)
Peek(w) ==
    /\ At(w, "peek")
    /\ IF Pending(Job(w)) THEN Moves(w, "init")
       ELSE IF ws[w].claimed /\ Count(w) # ws[w].known THEN Moves(w, "fenced")
       ELSE Becomes(w, [ws[w] EXCEPT !.known = Count(w), !.expect = Resume(w),
                                     !.pc = IF Checked(w) /\ Count(w) < Chunks THEN "precheck" ELSE "init"])
    /\ UNCHANGED brokers /\ Others

(* Checks.precheck. *)
Precheck(w) ==
    /\ At(w, "precheck")
    /\ Moves(w, IF Taken(Home, ws[w].expect[Home], Stable(Home)) THEN "overtaken" ELSE "init")
    /\ UNCHANGED brokers /\ Others

(* Checks.overtaken: the records after the expected offset may belong to the job. *)
Overtaken(w) ==
    /\ At(w, "overtaken")
    /\ ~Pending(Job(w))
    /\ Moves(w, IF Checks("overtaken") /\ Count(w) # ws[w].known THEN "fenced" ELSE "conflict")
    /\ UNCHANGED brokers /\ Others

(* Fence.put_up, for a claim and to resolve a commit. *)
PutUp(w) ==
    /\ \/ At(w, "init") /\ Moves(w, IF Expanding THEN "changed" ELSE "ledger")
       \/ At(w, "resolve") /\ Moves(w, "entry")
    /\ Fencing(Id(w), w)
    /\ UNCHANGED ledger /\ Others

(* TopicLayouts.changed, after the fence. *)
Changed(w) ==
    /\ At(w, "changed")
    /\ Moves(w, IF Checks("changed") /\ xp.pc \notin {"off", "start"} THEN "layout" ELSE "ledger")
    /\ UNCHANGED brokers /\ Others

(* Checks.fenced_progress. Without "ledger under fence", it is the entry that Peek has read. *)
ReadLedger(w) ==
    /\ At(w, "ledger")
    /\ ~Pending(Job(w))
    /\ LET n == IF Checks("ledger under fence") \/ IsWhole(w) THEN Count(w) ELSE ws[w].known IN
       IF ws[w].claimed /\ n # ws[w].known THEN Moves(w, "fenced")
       ELSE IF n = Chunks THEN Moves(w, "done")
       ELSE Becomes(w, [ws[w] EXCEPT !.claimed = TRUE, !.known = n, !.chunk = n + 1, !.expect = Resume(w),
                                     !.sent = 0, !.at = First(w), !.pc = IF Checked(w) THEN "bounds" ELSE "send"])
    /\ UNCHANGED brokers /\ Others

(* end_offsets.barriers and Checks.check: the end after all open transactions have ended. *)
Barrier(p) == IF Checks("barrier") THEN Stable(p) = High(p) ELSE TRUE

Check(w) ==
    /\ At(w, "bounds")
    /\ LET p == ws[w].at IN
       /\ Barrier(p)
       /\ IF Checks("expected offset") /\ Taken(p, ws[w].expect[p], High(p)) THEN Moves(w, "overtaken")
          ELSE Becomes(w, [ws[w] EXCEPT !.end = High(p), !.sent = 0, !.pc = "send"])
    /\ UNCHANGED brokers /\ Others

(* The state of a run after all records of a partition. *)
Sent(w, s) ==
    IF IsWhole(w) /\ s.at + 1 \in Parts
    THEN [s EXCEPT !.at = @ + 1, !.sent = 0, !.end = 0, !.pc = IF Checked(w) THEN "bounds" ELSE "send"]
    ELSE [s EXCEPT !.sent = 0, !.end = 0, !.pc = IF IsWhole(w) THEN "outcome" ELSE "commit"]

(* placement.landed: the acknowledged offsets, before the commit. *)
Landed(w, s) ==
    IF ~Checked(w) \/ ~Checks("landed") \/ (s.base[s.at] = s.end /\ s.tight) THEN Sent(w, s)
    ELSE [s EXCEPT !.tight = TRUE, !.pc = IF s.tight THEN "gap" ELSE "abort"]

(* Attempt._send: the records, and the ledger entry in the same transaction. *)
Send(w) ==
    /\ At(w, "send")
    /\ IF ~Holds(w) THEN Moves(w, "why") /\ UNCHANGED brokers
       ELSE LET p == ws[w].at
                row == ws[w].sent + 1
                entry == [job |-> Job(w), n |-> ws[w].chunk, end |-> <<>>]
                s == [ws[w] EXCEPT !.sent = row, !.base[p] = IF row = 1 THEN High(p) ELSE @,
                        !.tight = row = 1 \/ (@ /\ High(p) = ws[w].base[p] + row - 1)]
            IN /\ txn[Id(w)].st \in {"none", "open"}
               /\ log' = [log EXCEPT ![p] = Append(@,
                            [by |-> w, chunk |-> ws[w].chunk, row |-> row, st |-> "open"])]
               /\ txn' = Began(Id(w), IF IsWhole(w) \/ ~Checks("entry in transaction") THEN None ELSE entry)
               /\ Becomes(w, IF row = Rows THEN Landed(w, s) ELSE s)
               /\ UNCHANGED <<owner, ledger>>
    /\ Others

(* placement._only_aborted, which waits until earlier transactions have ended, or gives up. *)
Gap(w) ==
    /\ At(w, "gap")
    /\ LET p == ws[w].at
           base == ws[w].base[p]
       IN Becomes(w, IF Checks("gap has ended") /\ Stable(p) < base THEN [ws[w] EXCEPT !.pc = "abort"]
                     ELSE IF Checks("gap") /\ Taken(p, ws[w].end, base) THEN [ws[w] EXCEPT !.pc = "abort"]
                     ELSE Sent(w, ws[w]))
    /\ UNCHANGED brokers /\ Others

(* GroupWriter._commit_group: another run may have committed, and an expansion may have begun. *)
Outcome(w) ==
    /\ At(w, "outcome")
    /\ ~Pending(Job(w))
    /\ Moves(w, IF Count(w) > 0 THEN "done"
                ELSE IF Checks("changed") /\ xp.pc \notin {"off", "start"} THEN "layout" ELSE "commit")
    /\ UNCHANGED brokers /\ Others

Retried(w, pc) ==
    IF ws[w].tries < Tries
    THEN [ws[w] EXCEPT !.tries = @ + 1, !.sent = 0, !.pc = IF IsWhole(w) THEN "init" ELSE pc,
                       !.claimed = @ /\ ~IsWhole(w)]
    ELSE [ws[w] EXCEPT !.pc = "failed"]

AbortOwn(w) ==
    /\ At(w, "abort")
    /\ IF Holds(w) THEN Aborting(Id(w)) /\ Becomes(w, Retried(w, "bounds"))
       ELSE UNCHANGED <<txn, log>> /\ Moves(w, "why")
    /\ UNCHANGED <<owner, ledger>> /\ Others

(* EndTxn: `heard` is whether the run gets the reply, `received` whether the coordinator gets the request. *)
Commit(w, received, heard) ==
    /\ At(w, "commit")
    /\ heard => received
    /\ IF heard THEN UNCHANGED faults ELSE faults > 0 /\ faults' = faults - 1
    /\ IF Holds(w) /\ received
       THEN LET end == [p \in Parts |-> ws[w].base[p] + Rows]
                entry == [job |-> Job(w), n |-> ws[w].chunk, end |-> end]
            IN Committing(Id(w), IF Checks("entry in transaction") THEN entry ELSE None)
       ELSE UNCHANGED txn
    /\ Becomes(w, [ws[w] EXCEPT !.next = "send",
            !.pc = IF ~heard THEN "lost" ELSE IF Holds(w) THEN "acked" ELSE "rejected"])
    /\ UNCHANGED <<log, owner, ledger, plan, mode, other, rd, xp>>

Own(w, p) == {i \in 1..High(p) : log[p][i].by = w /\ log[p][i].chunk = ws[w].chunk}
IsVisible(w) == \A p \in PartsOf(Job(w)) : \A k \in 1..Rows : \E i \in Own(w, p) :
    Visible(p, i) /\ log[p][i].row = k

(* PartitionWriter._resolve. The client repeats the request, which may be rejected because the run is fenced. *)
Resolve(w) ==
    /\ At(w, "lost")
    /\ IF ~Checks("resolve") THEN Moves(w, "failed")
       ELSE \/ Moves(w, "resolve")
            \/ ~Holds(w) /\ Moves(w, "rejected")
    /\ UNCHANGED brokers /\ Others

(* Attempt.resolve: the ledger entry, or the records at their offsets, show a commit. *)
ReadOutcome(w) ==
    /\ At(w, "entry") \/ At(w, "rejected")
    /\ ~Pending(Job(w))
    /\ \A p \in PartsOf(Job(w)) : Own(w, p) \cap Open(p) = {}
    /\ LET p == ws[w].at
           end == ws[w].base[p] + Rows
           rejected == At(w, "rejected")
           exact == Count(w) = ws[w].chunk /\ ledger[Job(w)].end[p] = end
       IN Becomes(w,
            IF IsWhole(w)
            THEN IF Count(w) > 0 THEN [ws[w] EXCEPT !.pc = "done"]
                 ELSE IF rejected THEN [ws[w] EXCEPT !.pc = "fenced"] ELSE Retried(w, "init")
            ELSE IF exact \/ (Checks("visible") /\ IsVisible(w))
            THEN [ws[w] EXCEPT !.pc = "acked", !.next = IF rejected THEN "peek" ELSE "init"]
            ELSE IF Count(w) # ws[w].known THEN [ws[w] EXCEPT !.pc = "fenced"]
            ELSE IF rejected THEN [ws[w] EXCEPT !.pc = "why"]
            ELSE Retried(w, "init"))
    /\ UNCHANGED brokers /\ Others

(* PartitionWriter._acknowledge: it reports the chunk as appended when readers see it. *)
Acknowledge(w) ==
    /\ At(w, "acked")
    /\ IsVisible(w)
    /\ LET p == ws[w].at
           end == ws[w].base[p] + Rows
           left == Open(p) = {} /\ High(p) = end + 1
           state == [ws[w] EXCEPT !.ok = @ \cup {ws[w].chunk}, !.known = ws[w].chunk, !.tries = 0,
                                     !.next = "send", !.base = Start.base]
       IN Becomes(w, IF ws[w].chunk = Chunks THEN [state EXCEPT !.pc = "done"]
                     ELSE [state EXCEPT !.chunk = @ + 1, !.sent = 0, !.end = IF left THEN end + 1 ELSE 0,
                            !.expect = IF Checked(w) THEN [q \in Parts |-> ws[w].base[q] + Rows] ELSE @,
                            !.pc = IF ws[w].next # "send" THEN ws[w].next
                                   ELSE IF left \/ ~Checked(w) THEN "send" ELSE "bounds"])
    /\ IF Checks("entry in transaction") THEN UNCHANGED ledger
       ELSE ledger' = [ledger EXCEPT ![Job(w)] = [job |-> Job(w), n |-> ws[w].chunk,
                                                  end |-> [p \in Parts |-> ws[w].base[p] + Rows]]]
    /\ UNCHANGED <<log, txn, owner>> /\ Others

(* Checks.why_fenced, after a request was rejected. If the transaction was open for too long, the run retries. *)
WhyFenced(w) ==
    /\ At(w, "why")
    /\ ~Pending(Job(w))
    /\ IF Count(w) # ws[w].known \/ IsWhole(w) THEN Moves(w, "fenced")
       ELSE IF xp.pc \notin {"off", "start"} THEN Moves(w, "layout")
       ELSE IF Checked(w) THEN Moves(w, "why bounds")
       ELSE Moves(w, "fenced") \/ (ws[w].tries < Tries /\ Becomes(w, Retried(w, "peek")))
    /\ UNCHANGED brokers /\ Others

WhyConflict(w) ==
    /\ At(w, "why bounds")
    /\ Barrier(ws[w].at)
    /\ IF Taken(ws[w].at, ws[w].expect[ws[w].at], High(ws[w].at)) THEN Moves(w, "overtaken")
       ELSE Moves(w, "fenced") \/ (ws[w].tries < Tries /\ Becomes(w, Retried(w, "peek")))
    /\ UNCHANGED brokers /\ Others

(* ProducerPool.take closes the producer of a run between two chunks. *)
Evict(w) ==
    /\ At(w, "send") /\ ws[w].sent = 0 /\ ~IsWhole(w) /\ faults > 0
    /\ faults' = faults - 1
    /\ Moves(w, "peek")
    /\ UNCHANGED <<brokers, plan, mode, other, rd, xp>>

Step(w) ==
    \/ Pin(w) \/ Peek(w) \/ Precheck(w) \/ Overtaken(w) \/ PutUp(w) \/ Changed(w) \/ ReadLedger(w)
    \/ Check(w) \/ Send(w) \/ Gap(w) \/ Outcome(w) \/ AbortOwn(w)
    \/ Commit(w, TRUE, TRUE) \/ Resolve(w) \/ ReadOutcome(w) \/ Acknowledge(w) \/ WhyFenced(w) \/ WhyConflict(w)

Fault(w) == Evict(w) \/ Commit(w, TRUE, FALSE) \/ Commit(w, FALSE, FALSE)

-----------------------------------------------------------------------------
(* The reader: end_offsets.at_one_moment. *)

Entries == [j \in Whole |-> ledger[j].n]
Settled == \A j \in Whole : ~Pending(j)
ReaderMoves(state) == rd' = state /\ UNCHANGED <<brokers, plan, mode, ws, other, faults, xp>>

Read ==
    \/ /\ rd.pc = "start" /\ Settled
       /\ ReaderMoves([rd EXCEPT !.pc = "ends", !.before = Entries, !.target = [p \in Parts |-> High(p)]])
    \/ /\ rd.pc = "ends"
       /\ LET p == Cardinality(DOMAIN rd.ends) IN
          /\ Stable(p) >= rd.target[p]
          /\ ReaderMoves([rd EXCEPT !.ends = [q \in 0..p |-> IF q = p THEN Stable(p) ELSE rd.ends[q]],
                                    !.pc = IF p + 1 \in Parts THEN "ends" ELSE "confirm"])
    \/ /\ rd.pc = "confirm"
       /\ LET result == [rd EXCEPT !.pc = "read", !.before = <<>>, !.target = <<>>] IN
          \/ ~Checks("second read") /\ ReaderMoves(result)
          \/ \A p \in Parts : High(p) = rd.ends[p] /\ ReaderMoves(result)
          \/ Settled /\ Entries = rd.before /\ ReaderMoves(result)
          \/ Settled /\ Entries # rd.before /\ ReaderMoves([rd EXCEPT !.pc = "start", !.before = <<>>,
                                                            !.target = <<>>, !.ends = <<>>])

-----------------------------------------------------------------------------
(* The expansion: spark_cas.log.expanding, KafkaLog.begin_expansion and end_partition. *)

ExpansionMoves(state) == xp' = state /\ UNCHANGED <<ledger, plan, mode, ws, other, faults, rd>>
Completed(j) == \E w \in Runs : Job(w) = j /\ ws[w].pc = "done"

Expand ==
    \/ /\ xp.pc = "start"
       /\ LET todo == IF ~Checks("expansion fences") THEN {}
                      ELSE {"0"} \cup {IdOf(j) : j \in {k \in Jobs : plan[k] # <<>> /\ ~Completed(k)}}
          IN ExpansionMoves([xp EXCEPT !.pc = "fence", !.todo = todo,
                !.ends = IF Checks("threshold after fences") THEN <<>> ELSE [p \in Parts |-> High(p)]])
       /\ UNCHANGED <<log, txn, owner>>
    \/ /\ xp.pc = "fence"
       /\ \E id \in xp.todo :
            /\ Fencing(id, "nobody")
            /\ ExpansionMoves([xp EXCEPT !.todo = @ \ {id}])
    \/ /\ xp.pc = "fence" /\ xp.todo = {}
       /\ \A p \in Parts : Stable(p) = High(p)
       /\ ExpansionMoves([xp EXCEPT !.pc = "done", !.ends = IF @ = <<>> THEN [p \in Parts |-> High(p)] ELSE @])
       /\ UNCHANGED <<log, txn, owner>>

-----------------------------------------------------------------------------
Marks == \E id \in Ids : \E to \in Parts \cup {Group} : WriteMarker(id, to)

Next ==
    \/ Marks
    \/ \E id \in Ids : TimeOut(id)
    \/ \E p \in Parts, st \in {"yes", "open"} : OtherSends(p, st)
    \/ OtherEnds
    \/ \E w \in Runs : Step(w) \/ Fault(w)
    \/ Read
    \/ Expand

(* A crashed run is one that takes no further step. *)
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The properties. *)

Committed(j, p) == {i \in 1..High(p) : Visible(p, i) /\ log[p][i].by \in Runs /\ Job(log[p][i].by) = j}
Number(p, i) == Rows * log[p][i].chunk + log[p][i].row

(* Each row of a job is visible at most once. *)
NoRowTwice == \A j \in Jobs, p \in Parts : \A i, k \in Committed(j, p) : Number(p, i) = Number(p, k) => i = k

(* The visible rows of a job are its first ones, in their order. *)
RowsInOrder == \A j \in Jobs, p \in Parts : \A i \in Committed(j, p) :
    /\ \A k \in Committed(j, p) : k < i => Number(p, k) <= Number(p, i)
    /\ \A n \in (Rows + 1)..(Number(p, i) - 1) : \E k \in Committed(j, p) : k < i /\ Number(p, k) = n

(* No other row is visible between the planned offset of a job and its rows. *)
AtExpectedOffset == \A j \in Jobs, p \in Parts : mode[j] = "end" => \A i \in Committed(j, p) :
    /\ i > plan[j][p]
    /\ \A k \in (plan[j][p] + 1)..i : Visible(p, k) => k \in Committed(j, p)

(* The ledger entry counts the visible chunks, if no transaction is open. *)
LedgerCounts == (\A id \in Ids : txn[id].st = "none") => \A j \in Jobs, p \in Parts :
    p \in PartsOf(j) => Cardinality(Committed(j, p)) = Rows * ledger[j].n

(* A rejected chunk leaves nothing visible. *)
RejectedIsInvisible == \A w \in Runs : ws[w].pc \in Refused =>
    \A p \in Parts : \A i \in 1..High(p) : Visible(p, i) => ~(log[p][i].by = w /\ log[p][i].chunk = ws[w].chunk)

(* A row is visible, or only its marker is missing. *)
IsDecided(j, p, i) == log[p][i].by \in Runs /\ Job(log[p][i].by) = j /\
    (Visible(p, i) \/ (log[p][i].st = "open" /\ txn[Id(log[p][i].by)].st = "commit"))

(* A chunk that was reported as appended is visible, and all chunks of a completed job are committed. *)
AppendedIsVisible == \A w \in Runs : \A p \in PartsOf(Job(w)) :
    /\ \A c \in ws[w].ok : \E i \in 1..High(p) : Visible(p, i) /\ log[p][i].by = w /\ log[p][i].chunk = c
    /\ ws[w].pc = "done" => Cardinality({i \in 1..High(p) : IsDecided(Job(w), p, i)}) = Rows * Chunks

(* A reported conflict has a record of another job or producer. *)
ConflictIsReal == \A w \in Runs : ws[w].pc = "conflict" => \E p \in PartsOf(Job(w)) :
    \E i \in (ws[w].expect[p] + 1)..High(p) : Visible(p, i) /\ i \notin Committed(Job(w), p)

(* A reader sees an atomic load in all partitions or in none, and only records that are decided. *)
ReaderSeesWhole == rd.pc = "read" =>
    /\ \A p \in Parts : rd.ends[p] <= Stable(p)
    /\ \A j \in Whole : Cardinality({p \in Parts : \E i \in Committed(j, p) : i <= rd.ends[p]})
                        \in {0, Cardinality(Parts)}

(* No row of the old layout is visible at or above the threshold of an expansion. *)
OldLayoutEnds == xp.pc = "done" => \A j \in Jobs, p \in Parts : \A i \in Committed(j, p) : i <= xp.ends[p]

Symmetric == Permutations(RunsA) \cup Permutations(RunsB)
=============================================================================
