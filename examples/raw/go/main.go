// A payment under a stored policy, with nothing but go-redis: ENTER before the call, EXIT after it.
// Usage: go run . <port>. The first two attempts fail; the third succeeds.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

const policyKey = "resil:policy:{payments-go}"

const document = `{"timeout":{"attempt":"2s","total":"10s"},"breaker":{"consecutiveFailures":5},
  "rateLimit":{"limit":100,"period":"1m"},"sharedBulkhead":{"maxConcurrentCalls":10},
  "retry":{"maxAttempts":3,"initialBackoff":"10ms","jitter":"none"}}`

// guarded makes call under the policy, again as long as the policy says so.
func guarded(ctx context.Context, client *redis.Client, owner string, call func(ctx context.Context, attempt int64) error) error {
	enter := []any{"RES.GUARD", "ENTER", policyKey, owner}
	for {
		entered, err := client.Do(ctx, enter...).Slice()
		if err != nil {
			return err
		}
		if entered[0] != "ADMITTED" {
			return fmt.Errorf("refused by %v: %v", entered[1], entered[3])
		}
		ticket, attempt := entered[1], entered[2].(int64)
		attemptCtx, cancel := ctx, context.CancelFunc(func() {})
		if timeout := entered[3].(int64); timeout >= 0 {
			attemptCtx, cancel = context.WithTimeout(ctx, time.Duration(timeout)*time.Millisecond)
		}
		failure := call(attemptCtx, attempt)
		cancel()
		outcome := "OK"
		if failure != nil {
			outcome = "FAIL"
		}
		exited, err := client.Do(ctx, "RES.GUARD", "EXIT", policyKey, ticket, outcome).Slice()
		if err != nil {
			return err
		}
		switch exited[0] {
		case "DONE":
			return nil
		case "RETRY":
			time.Sleep(time.Duration(exited[1].(int64)) * time.Millisecond)
			enter = []any{"RES.GUARD", "ENTER", policyKey, owner, "TICKET", ticket}
		default:
			return fmt.Errorf("given up after %v attempts (%v): %w", exited[2], exited[1], failure)
		}
	}
}

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	if err := client.Do(ctx, "RES.POLICY", "SET", policyKey, document, "ACTOR", "example").Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var paidAt int64
	err := guarded(ctx, client, fmt.Sprintf("go-%d", os.Getpid()), func(_ context.Context, attempt int64) error {
		// The payment provider: it works at the third attempt.
		if attempt < 3 {
			return errors.New("the provider is away")
		}
		paidAt = attempt
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("paid at attempt %d\n", paidAt)
}
