// Reads a history of a key-value store from standard input, and checks with Porcupine whether it is linearizable.
//
// Each line is an operation:
//
//	{"process": 0, "call": 1, "return": 9, "steps": [{"op": "put", "key": "k", "value": "v", "version": 3}]}
//
// An operation with one step is plain. Several steps, each on another key, are an atomic transaction. Each key of a
// history is checked separately, because linearizability is local (Herlihy and Wing). Keys of the same transaction are
// checked together, as one map of registers.
//
//   - get returns "value" and "version", which are null if the key is absent.
//   - put and delete return "version", the new version of the key, which is higher than all earlier ones. It is null if
//     the client received no response; the next operation on the key may return it.
//   - cas is a put that expects the version "expected" of the key, null for an absent key. remove is such a delete. check
//     only expects the version.
//
// "mismatch": true is a write that the store rejected because a key had another version than "expected". Its only step is
// that of the key, with the reported version. "return" is null if the client received no response: then the operation
// may take effect at any time after its call, or never. Other operations that definitely failed are not in the history.
//
// Exit codes: 0 linearizable; 1 not linearizable, and the keys are printed; 2 no history; 3 no result before the timeout.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

func main() {
	limit := flag.Duration("limit", time.Minute, "timeout of the search for an order")
	flag.Parse()
	operations, err := readHistory(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(check(operations, *limit))
}

func readHistory(file *os.File) ([]operation, error) {
	var found []operation
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var each operation
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&each); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(found)+1, err)
		}
		if err := each.valid(); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(found)+1, err)
		}
		found = append(found, each)
	}
	return found, lines.Err()
}

func check(operations []operation, limit time.Duration) int {
	deadline := time.Now().Add(limit)
	code := 0
	for _, group := range groups(operations) {
		switch porcupine.CheckOperationsTimeout(model, group.history, max(time.Until(deadline), time.Millisecond)) {
		case porcupine.Illegal:
			fmt.Printf("not linearizable: %s\n", strings.Join(group.keys, " "))
			code = 1
		case porcupine.Unknown:
			fmt.Printf("not known in time: %s\n", strings.Join(group.keys, " "))
			if code == 0 {
				code = 3
			}
		}
	}
	if code == 0 {
		fmt.Printf("ok: %d operations\n", len(operations))
	}
	return code
}

// A group is the history of keys that are linked by transactions.
type group struct {
	keys    []string
	history []porcupine.Operation
}

func groups(operations []operation) []*group {
	parent := map[string]string{}
	var root func(string) string
	root = func(key string) string {
		if up, known := parent[key]; known && up != key {
			parent[key] = root(up)
			return parent[key]
		}
		parent[key] = key
		return key
	}
	for _, each := range operations {
		for _, step := range each.Steps[1:] {
			parent[root(step.Key)] = root(each.Steps[0].Key)
		}
	}
	byRoot := map[string]*group{}
	for _, each := range operations {
		at := root(each.Steps[0].Key)
		if byRoot[at] == nil {
			byRoot[at] = &group{}
		}
		byRoot[at].history = append(byRoot[at].history, each.operation())
	}
	for key := range parent {
		found := byRoot[root(key)]
		found.keys = append(found.keys, key)
	}
	var all []*group
	for _, each := range byRoot {
		slices.Sort(each.keys)
		all = append(all, each)
	}
	slices.SortFunc(all, func(a, b *group) int { return strings.Compare(a.keys[0], b.keys[0]) })
	return all
}
