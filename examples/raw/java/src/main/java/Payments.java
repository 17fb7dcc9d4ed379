import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongPredicate;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.commands.ProtocolCommand;

/**
 * A payment under a stored policy, with nothing but Jedis: ENTER before the call, EXIT after it.
 * Usage: Payments port. The first two attempts fail; the third succeeds.
 */
public final class Payments {
    private static final String POLICY = "resil:policy:{payments-java}";
    private static final String DOCUMENT = """
        {"timeout":{"attempt":"2s","total":"10s"},"breaker":{"consecutiveFailures":5},
         "rateLimit":{"limit":100,"period":"1m"},"sharedBulkhead":{"maxConcurrentCalls":10},
         "retry":{"maxAttempts":3,"initialBackoff":"10ms","jitter":"none"}}""";

    private enum Command implements ProtocolCommand {
        POLICY, GUARD;

        @Override
        public byte[] getRaw() {
            return ("RES." + name()).getBytes(StandardCharsets.UTF_8);
        }
    }

    private static String text(Object reply) {
        return reply instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : String.valueOf(reply);
    }

    private static List<?> guard(Jedis jedis, List<String> words) {
        return (List<?>) jedis.sendCommand(Command.GUARD, words.toArray(String[]::new));
    }

    /** Makes the call under the policy, again as long as the policy says so. Returns the attempt that succeeded. */
    static long guarded(Jedis jedis, String owner, LongPredicate call) throws InterruptedException {
        List<String> enter = new ArrayList<>(List.of("ENTER", POLICY, owner));
        while (true) {
            List<?> entered = guard(jedis, enter);
            if (!text(entered.get(0)).equals("ADMITTED")) {
                throw new IllegalStateException("refused by " + text(entered.get(1)) + ": " + text(entered.get(3)));
            }
            String ticket = text(entered.get(1));
            long attempt = (Long) entered.get(2);
            boolean succeeded = call.test(attempt);
            List<?> exited = guard(jedis, List.of("EXIT", POLICY, ticket, succeeded ? "OK" : "FAIL"));
            switch (text(exited.get(0))) {
                case "DONE" -> {
                    return attempt;
                }
                case "RETRY" -> {
                    Thread.sleep((Long) exited.get(1));
                    enter = List.of("ENTER", POLICY, owner, "TICKET", ticket);
                }
                default -> throw new IllegalStateException(
                    "given up after " + exited.get(2) + " attempts: " + text(exited.get(1)));
            }
        }
    }

    public static void main(String[] args) throws InterruptedException {
        try (Jedis jedis = new Jedis("127.0.0.1", Integer.parseInt(args[0]))) {
            jedis.sendCommand(Command.POLICY, "SET", POLICY, DOCUMENT, "ACTOR", "example");
            // The payment provider: it works at the third attempt.
            long attempt = guarded(jedis, "java-" + ProcessHandle.current().pid(), number -> number >= 3);
            System.out.println("paid at attempt " + attempt);
        }
    }
}
