// Runs many of Apache Kafka's command line tools in one JVM, because starting one for each takes most of the time.
//
// Standard input has one tool per line: its main class and its arguments, separated by tabs. For each, standard output
// gets the exit status and the length of the output in bytes on one line, then what the tool wrote to both streams.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

public class ToolRunner {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream written = new ByteArrayOutputStream();
            int status = run(line.split("\t"), new PrintStream(written, true, StandardCharsets.UTF_8));
            answers.println(status + " " + written.size());
            answers.write(written.toByteArray());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String[] command, PrintStream output) throws Exception {
        CompletableFuture<Integer> status = new CompletableFuture<>();
        Exit.Procedure end = (code, message) -> {
            status.complete(code);
            // A tool must not go on after its exit, and an exception would be caught and printed by many of them.
            while (true) {
                LockSupport.park();
            }
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        System.setOut(output);
        System.setErr(output);
        Thread tool = new Thread(() -> {
            try {
                Class.forName(command[0])
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(command, 1, command.length));
                status.complete(0);
            } catch (Throwable failure) {
                failure.printStackTrace(output);
                status.complete(1);
            }
        });
        tool.setDaemon(true);
        tool.start();
        int code = status.get();
        output.flush();
        return code;
    }
}
