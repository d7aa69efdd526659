// nats-server's Sublist and stree on the workload of compare.py.
// usage: peer DATA_DIR PATTERN_COUNT...; prints one JSON object a line.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/stree"
)

const asked = 100_000
const repeats = 5

func lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return strings.Split(string(data), "\n")
}

func emit(row map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(row); err != nil {
		panic(err)
	}
}

// CPU seconds of the process, garbage collection included.
func spent() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / 1e6
}

func median(work func()) float64 {
	var times []float64
	for range repeats {
		begin := spent()
		work()
		times = append(times, spent()-begin)
	}
	slices.Sort(times)
	return times[repeats/2]
}

// The type of a subscription is not exported: take it from the method that inserts one.
func insert[T any](add func(*T) error, subject string) {
	field, ok := reflect.TypeFor[T]().FieldByName("subject")
	if !ok {
		panic("nats-server's subscription has no subject")
	}
	subscription := new(T)
	*(*[]byte)(unsafe.Add(unsafe.Pointer(subscription), field.Offset)) = []byte(subject)
	if err := add(subscription); err != nil {
		panic(err)
	}
}

// How many plain subscriptions a result holds: the first field of a type without exported ones.
func size(result *server.SublistResult) int {
	return len(*(*[]unsafe.Pointer)(unsafe.Pointer(result)))
}

func match(folder, count string, topics []string) {
	before := heap()
	list := server.NewSublistNoCache()
	for _, pattern := range lines(folder + "/patterns" + count) {
		insert(list.Insert, pattern)
	}
	memory := heap() - before
	found := 0
	seconds := median(func() {
		found = 0
		for _, topic := range topics {
			found += size(list.Match(topic))
		}
	})
	var number int
	fmt.Sscan(count, &number)
	emit(map[string]any{"task": "match", "peer": "nats-server Sublist, no cache", "patterns": number,
		"rate": float64(len(topics)) / seconds, "matches": float64(found) / float64(len(topics)), "mb": memory})
	runtime.KeepAlive(list)
}

func expand(folder string, topics []string) {
	before := heap()
	tree := stree.NewSubjectTree[int]()
	for number, topic := range topics {
		tree.Insert([]byte(topic), number)
	}
	memory := heap() - before
	for _, pattern := range lines(folder + "/expand") {
		var found []int
		rounds := 1
		work := func() {
			for range rounds {
				found = found[:0]
				tree.Match([]byte(pattern), func(_ []byte, number *int) { found = append(found, *number) })
			}
		}
		work()
		if len(found) < 1000 {
			rounds = 1000 // the clock counts in coarse steps
		}
		seconds := median(work) / float64(rounds)
		emit(map[string]any{"task": "expand", "peer": "nats-server stree", "pattern": pattern,
			"us": seconds * 1e6, "found": len(found), "mb": memory})
	}
	runtime.KeepAlive(tree)
}

func main() {
	folder := os.Args[1]
	topics := lines(folder + "/topics")
	for _, count := range os.Args[2:] {
		match(folder, count, topics[:asked])
	}
	expand(folder, topics)
}
