// Runs many of Apache Kafka's command line tools in one JVM, because starting one for each takes most of the time.
//
// Standard input has one tool per line: its main class and its arguments, separated by tabs; a last one that begins with
// "<" names the file that the tool gets as its standard input. For each, standard output gets the exit status and the length of the output in bytes on one line, then what the tool wrote to both streams.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.internals.Exit;

public class ToolRunner {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream written = new ByteArrayOutputStream();
            int status = run(withInput(line.split("\t")), new PrintStream(written, true, StandardCharsets.UTF_8));
            // A thread that a tool has left behind may still write.
            byte[] output = written.toByteArray();
            answers.println(status + " " + output.length);
            answers.write(output);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String[] withInput(String[] command) throws Exception {
        String last = command[command.length - 1];
        boolean isFile = last.startsWith("<");
        System.setIn(isFile ? new FileInputStream(last.substring(1)) : InputStream.nullInputStream());
        return isFile ? Arrays.copyOf(command, command.length - 1) : command;
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
