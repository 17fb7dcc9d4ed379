// redsync, and RES.LOCK from the same client.
//
// Usage: redsync PORT WAY SECONDS CONTENDERS HOLD_MS. WAY is `peer`, `ours`, `pairs`: both, uncontended, in turn, or redsync alone over the
// servers at PORT,PORT,...: `quorum`, a lock for each contender, or `quorum-contended`, one for all. Prints
// one object in JSON, as lock_bench.py does. A contender is a goroutine with a connection of its own. Redsync's
// defaults, but for this: it never gives up.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	slices = 20
	lease  = 10 * time.Second
)

var ctx = context.Background()

// What a contender does.
type way struct{ acquire, release func() }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func connect(port string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, PoolSize: 1, ReadTimeout: -1})
	must(client.Ping(ctx).Err())
	return client
}

func peer(client *redis.Client, _ int) way {
	mutex := redsync.New(goredis.NewPool(client)).NewMutex("redsync-contended", redsync.WithExpiry(lease), redsync.WithTries(1<<30))
	return way{
		acquire: func() { must(mutex.Lock()) },
		release: func() {
			_, err := mutex.Unlock()
			must(err)
		},
	}
}

func ours(client *redis.Client, number int) way {
	owner := fmt.Sprintf("owner:%010d", number)
	expect := func(verdict string, words ...any) {
		said, err := client.Do(ctx, words...).Slice()
		must(err)
		if said[0] != verdict {
			panic(fmt.Sprint("the server answered ", said))
		}
	}
	return way{
		acquire: func() { expect("GRANTED", "RES.LOCK", "ACQUIRE", "go-contended", owner, "10s", "WAIT", "60s") },
		release: func() { expect("RELEASED", "RES.LOCK", "RELEASE", "go-contended", owner) },
	}
}

type contention struct {
	Served []int   `json:"served"`
	Waits  []int64 `json:"waits_us"`
}

func contend(make func(*redis.Client, int) way, port string, length, hold time.Duration, contenders int) (all contention) {
	var ways []way
	for number := range contenders {
		ways = append(ways, make(connect(port), number))
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	end := time.Now().Add(length)
	for _, way := range ways {
		group.Add(1)
		go func() {
			defer group.Done()
			served, waits := 0, []int64{}
			for asked := time.Now(); asked.Before(end); asked = time.Now() {
				way.acquire()
				had := time.Now()
				waits = append(waits, had.Sub(asked).Microseconds())
				if had.Before(end) {
					served++
				}
				time.Sleep(hold)
				way.release()
			}
			lock.Lock()
			defer lock.Unlock()
			all.Served = append(all.Served, served)
			all.Waits = append(all.Waits, waits...)
		}()
	}
	group.Wait()
	return all
}

func rate(way way, length time.Duration) float64 {
	pairs, started := 0, time.Now()
	for time.Since(started) < length {
		way.acquire()
		way.release()
		pairs++
	}
	return float64(pairs) / time.Since(started).Seconds()
}

func pairs(port string, length time.Duration) map[string][]float64 {
	client := connect(port)
	ways := map[string]way{"peer": peer(client, 0), "ours": ours(client, 0)}
	rates := map[string][]float64{}
	for range slices {
		for _, name := range []string{"peer", "ours"} {
			rates[name] = append(rates[name], rate(ways[name], length/slices/2))
		}
	}
	return rates
}

// Callers with a lock each over several servers, or with one for all, with redsync's defaults and go-redis's pools. A caller that waits for one that
// others have never gives up.
func quorum(ports []string, length time.Duration, callers int, contended bool) map[string]any {
	var pools []redsyncredis.Pool
	for _, port := range ports {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, PoolSize: 2 * callers})
		must(client.Ping(ctx).Err())
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)
	var group sync.WaitGroup
	var lock sync.Mutex
	waits := []int64{}
	started := time.Now()
	for number := range callers {
		group.Add(1)
		go func() {
			defer group.Done()
			name, tries := fmt.Sprintf("redsync-%d", number), redsync.WithTries(32)
			if contended {
				name, tries = "redsync-contended", redsync.WithTries(1<<30)
			}
			mutex := locks.NewMutex(name, redsync.WithExpiry(lease), tries)
			own := []int64{}
			for time.Since(started) < length {
				asked := time.Now()
				must(mutex.Lock())
				own = append(own, time.Since(asked).Microseconds())
				_, err := mutex.Unlock()
				must(err)
			}
			lock.Lock()
			defer lock.Unlock()
			waits = append(waits, own...)
		}()
	}
	group.Wait()
	return map[string]any{"waits_us": waits, "seconds": time.Since(started).Seconds()}
}

func main() {
	port := os.Args[1]
	number := func(word string) float64 {
		number, err := strconv.ParseFloat(word, 64)
		must(err)
		return number
	}
	length := time.Duration(number(os.Args[3]) * float64(time.Second))
	hold := time.Duration(number(os.Args[5]) * float64(time.Millisecond))
	var found any
	switch os.Args[2] {
	case "peer":
		found = contend(peer, port, length, hold, int(number(os.Args[4])))
	case "ours":
		found = contend(ours, port, length, hold, int(number(os.Args[4])))
	case "pairs":
		found = pairs(port, length)
	case "quorum", "quorum-contended":
		found = quorum(strings.Split(port, ","), length, int(number(os.Args[4])), os.Args[2] == "quorum-contended")
	}
	must(json.NewEncoder(os.Stdout).Encode(found))
}
