package main

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// An operation as a line describes it.
type operation struct {
	Process  int    `json:"process"`
	Call     int64  `json:"call"`
	Return   *int64 `json:"return"`
	Steps    []step `json:"steps"`
	Mismatch bool   `json:"mismatch"`
}

type step struct {
	Op       string `json:"op"`
	Key      string `json:"key"`
	Value    string `json:"value"`
	Version  *int64 `json:"version"`
	Expected *int64 `json:"expected"`
}

var (
	kinds   = []string{"get", "put", "delete", "cas", "remove", "check"}
	expects = []string{"cas", "remove", "check"}
	deletes = []string{"delete", "remove"}
)

func (o operation) valid() error {
	if len(o.Steps) == 0 {
		return fmt.Errorf("an operation has at least one step")
	}
	if o.Return != nil && *o.Return < o.Call {
		return fmt.Errorf("an operation returns before it is called")
	}
	if o.Mismatch && (o.Return == nil || len(o.Steps) > 1 || !o.Steps[0].expects()) {
		return fmt.Errorf("only a single step with an expected version that returned can be a mismatch")
	}
	keys := map[string]bool{}
	for _, each := range o.Steps {
		if !slices.Contains(kinds, each.Op) {
			return fmt.Errorf("there is no operation %q", each.Op)
		}
		if keys[each.Key] {
			return fmt.Errorf("two steps are on key %q", each.Key)
		}
		keys[each.Key] = true
	}
	return nil
}

func (o operation) operation() porcupine.Operation {
	returned := int64(math.MaxInt64)
	if o.Return != nil {
		returned = *o.Return
	}
	return porcupine.Operation{ClientId: o.Process, Input: o, Call: o.Call, Return: returned}
}

func (s step) expects() bool {
	return slices.Contains(expects, s.Op)
}

// A register is the value of a key. The version of a write without a response is unknown, but above the newest known one.
type register struct {
	value   string
	present bool
	unheard bool
	newest  int64
}

// canBe returns whether the register can have this version, nil for an absent key.
func (r register) canBe(version *int64) bool {
	switch {
	case version == nil || !r.present:
		return version == nil && !r.present
	case r.unheard:
		return *version > r.newest
	default:
		return *version == r.newest
	}
}

// at returns the register after a response reported its version.
func (r register) at(version *int64) register {
	if version != nil {
		r.newest, r.unheard = *version, false
	}
	return r
}

type state map[string]register

func (s state) of(key string) register {
	if found, known := s[key]; known {
		return found
	}
	return register{newest: -1}
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(now, input, _ any) (bool, any) { return input.(operation).take(now.(state)) },
	Equal: func(a, b any) bool {
		return maps.Equal(a.(state), b.(state))
	},
}

func (o operation) take(now state) (bool, state) {
	next := maps.Clone(now)
	if o.Mismatch {
		missed := o.Steps[0]
		found := now.of(missed.Key)
		next[missed.Key] = found.at(missed.Version)
		return found.canBe(missed.Version) && !same(missed.Version, missed.Expected), next
	}
	for _, each := range o.Steps {
		after, ok := each.take(now.of(each.Key), o.Return != nil)
		if !ok {
			// A write without a response may have been rejected, or never have taken effect.
			return o.Return == nil, now
		}
		next[each.Key] = after
	}
	return true, next
}

func same(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func (s step) take(now register, heard bool) (register, bool) {
	if s.Op == "get" {
		if !heard {
			return now, true
		}
		return now.at(s.Version), now.canBe(s.Version) && (!now.present || now.value == s.Value)
	}
	if s.expects() {
		if !now.canBe(s.Expected) {
			return now, false
		}
		now = now.at(s.Expected)
		if s.Op == "check" {
			return now, true
		}
	}
	after := register{newest: now.newest}
	if !slices.Contains(deletes, s.Op) {
		after = register{value: s.Value, present: true, unheard: s.Version == nil, newest: now.newest}
	}
	if s.Version != nil {
		if *s.Version <= now.newest {
			return now, false
		}
		after.newest = *s.Version
	}
	return after, true
}
