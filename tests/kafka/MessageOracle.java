// Reads lines "class version hex" and answers each with "hex json": what Kafka's own class makes of those bytes, written again and
// as its JSON converter shows it. A line that Kafka cannot read is answered with "error" and the reason.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class MessageOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                output.append(answer(Class.forName(words[0]), Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
            } catch (Exception error) {
                output.append("error " + String.valueOf(error).replace('\n', ' '));
            }
            output.append('\n');
        }
        System.out.print(output);
    }

    private static String answer(Class<?> type, short version, byte[] bytes) throws Exception {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining())
            throw new IllegalStateException(buffer.remaining() + " bytes are left over");
        ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] written = new byte[again.remaining()];
        again.get(written);
        Method converter = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class);
        return HexFormat.of().formatHex(written) + " " + (JsonNode) converter.invoke(null, message, version);
    }
}
