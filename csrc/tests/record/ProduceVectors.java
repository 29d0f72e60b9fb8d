import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.common.utils.internals.ByteUtils;
import org.apache.kafka.common.utils.internals.Crc32C;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Writes produce_vectors.h: Produce payloads, good and bad, with what Apache Kafka's own classes answer to each of them
 * and the bytes that its log then holds. Run with the jars of kafka-storage and what it depends on:
 *
 *     java -cp 'libs/*' csrc/tests/record/ProduceVectors.java > csrc/tests/record/produce_vectors.h
 */
public final class ProduceVectors {
    private static final long NOW = 1_700_000_000_000L;
    private static final int NONE = 0;
    private static final int GZIP = 1;
    private static final int SNAPPY = 2;
    private static final int LZ4 = 3;
    private static final int ZSTD = 4;
    private static final int LOG_APPEND_TIME = 8;
    private static final int TRANSACTIONAL = 16;
    private static final int CONTROL = 32;

    /** One batch's header fields with defaults that make it valid. */
    private static final class Batch {
        long baseOffset = 0;
        int magic = 2;
        int attributes = 0;
        Integer lastDelta = null;
        Integer count = null;
        long baseTimestamp = NOW;
        long maxTimestamp = NOW;
        long producerId = -1;
        short producerEpoch = -1;
        int sequence = -1;
        Integer length = null;
        byte[] payload = new byte[0];
        int records = 0;
        int crcXor = 0;

        Batch(int attributes, byte[]... records) throws IOException {
            this.attributes = attributes;
            this.records = records.length;
            this.payload = compress(attributes & 7, join(records));
        }

        byte[] bytes() {
            int size = 61 + payload.length;
            ByteBuffer buffer = ByteBuffer.allocate(size);
            buffer.putLong(baseOffset).putInt(length != null ? length : size - 12).putInt(-1).put((byte) magic).putInt(0);
            buffer.putShort((short) attributes).putInt(lastDelta != null ? lastDelta : records - 1);
            buffer.putLong(baseTimestamp).putLong(maxTimestamp).putLong(producerId).putShort(producerEpoch);
            buffer.putInt(sequence).putInt(count != null ? count : records).put(payload);
            buffer.putInt(17, (int) Crc32C.compute(buffer.array(), 21, size - 21) ^ crcXor);
            return buffer.array();
        }
    }

    /** A topic's settings, with Kafka's defaults. */
    private static final class Rules {
        int maxMessageBytes = 1048588;
        boolean logAppendTime = false;
        long before = Long.MAX_VALUE;
        long after = 3600000;
        boolean compacted = false;
        String compression = "producer";
        short version = 13;
    }

    private static byte[] join(byte[]... parts) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (byte[] part : parts)
            out.writeBytes(part);
        return out.toByteArray();
    }

    private static byte[] compress(int type, byte[] data) throws IOException {
        if (type == NONE || type > ZSTD)
            return data;
        ByteBufferOutputStream buffer = new ByteBufferOutputStream(1024);
        try (OutputStream out = Compression.of(CompressionType.forId(type)).build().wrapForOutput(buffer, (byte) 2)) {
            out.write(data);
        }
        ByteBuffer written = buffer.buffer();
        written.flip();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return bytes;
    }

    private interface Writer {
        void write(DataOutputStream out) throws IOException;
    }

    private static byte[] raw(Writer writer) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        writer.write(new DataOutputStream(bytes));
        return bytes.toByteArray();
    }

    /** A record of that body, its length right. */
    private static byte[] body(Writer writer) throws IOException {
        byte[] content = raw(writer);
        return raw(out -> {
            ByteUtils.writeVarint(content.length, out);
            out.write(content);
        });
    }

    private static void field(DataOutputStream out, String text) throws IOException {
        ByteUtils.writeVarint(text == null ? -1 : text.length(), out);
        if (text != null)
            out.writeBytes(text);
    }

    private static byte[] record(int delta, long timestampDelta, String key, String value, String... headers)
        throws IOException {
        return body(out -> {
            out.write(0);
            ByteUtils.writeVarlong(timestampDelta, out);
            ByteUtils.writeVarint(delta, out);
            field(out, key);
            field(out, value);
            ByteUtils.writeVarint(headers.length / 2, out);
            for (String header : headers)
                field(out, header);
        });
    }

    private static void emit(String name, Rules rules, byte[] input) throws Exception {
        int error = 0;
        List<Integer> indexes = new ArrayList<>();
        byte[] stored = new byte[0];
        File dir = Files.createTempDirectory("vectors").resolve("topic-0").toFile();
        dir.mkdirs();
        try (UnifiedLog log = open(dir, rules)) {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(input.clone()));
            try {
                ProduceRequest.validateRecords(rules.version, records);
                log.appendAsLeader(records, 7, AppendOrigin.CLIENT, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
                    (short) 0);
            } catch (RecordValidationException e) {
                error = Errors.forException(e.invalidException()).code();
                for (ProduceResponse.RecordError recordError : e.recordErrors())
                    indexes.add(recordError.batchIndex);
            } catch (Throwable e) {
                error = Errors.forException(e).code();
            }
            log.flush(false);
            if (error == 0)
                stored = Files.readAllBytes(new File(dir, "00000000000000000000.log").toPath());
        }
        if (!rules.compression.equals("producer"))
            stored = new byte[0];
        System.out.printf("    {\"%s\", %d, %d, %b, INT64_C(%d), INT64_C(%d), %b, %d, %d, %d, {%s},%n    \"%s\",%n    \"%s\"},%n",
            name, rules.version, rules.maxMessageBytes, rules.logAppendTime, rules.before, rules.after, rules.compacted,
            target(rules.compression), error, indexes.size(),
            indexes.isEmpty() ? "0" : String.join(", ", indexes.stream().map(String::valueOf).toList()), hex(input), hex(stored));
    }

    private static int target(String name) {
        return Arrays.asList("none", "gzip", "snappy", "lz4", "zstd").indexOf(name.equals("uncompressed") ? "none" : name);
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < bytes.length; i++) {
            if (i > 0 && i % 56 == 0)
                text.append("\"\n    \"");
            text.append(String.format("%02x", bytes[i]));
        }
        return text.toString();
    }

    private static UnifiedLog open(File dir, Rules rules) throws IOException {
        Properties properties = new Properties();
        properties.put("max.message.bytes", rules.maxMessageBytes);
        properties.put("message.timestamp.type", rules.logAppendTime ? "LogAppendTime" : "CreateTime");
        properties.put("message.timestamp.before.max.ms", rules.before);
        properties.put("message.timestamp.after.max.ms", rules.after);
        properties.put("cleanup.policy", rules.compacted ? "compact" : "delete");
        properties.put("compression.type", rules.compression);
        Time time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, args) -> method.getName().equals("milliseconds") ? NOW : method.invoke(Time.SYSTEM, args));
        Object never = Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class},
            (proxy, method, args) -> method.getReturnType() == boolean.class ? false : null);
        Scheduler scheduler = (Scheduler) Proxy.newProxyInstance(Scheduler.class.getClassLoader(),
            new Class<?>[] {Scheduler.class},
            (proxy, method, args) -> method.getReturnType() == ScheduledFuture.class ? never : null);
        return UnifiedLog.create(dir, new LogConfig(properties), 0, 0, scheduler, new BrokerTopicStats(), time, 900000,
            new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true, Optional.empty());
    }

    private static byte[] single(int delta) throws IOException {
        return record(delta, 0, "k", "v");
    }

    private static Batch good(int attributes) throws IOException {
        return new Batch(attributes, single(0), single(1), single(2));
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("/* Written by ProduceVectors.java from Apache Kafka 4.4.0's answers; not edited by hand. */");
        System.out.println("/* clang-format off */");
        System.out.println("static const produce_vector PRODUCE_VECTORS[] = {");
        valid();
        headers();
        framing();
        timestamps();
        keys();
        structure();
        offsets();
        codecs();
        targets();
        System.out.println("};");
    }

    private static void valid() throws Exception {
        String[] names = {"none", "gzip", "snappy", "lz4", "zstd"};
        for (int type = NONE; type <= ZSTD; type++) {
            emit("valid one " + names[type], new Rules(), new Batch(type, single(0)).bytes());
            emit("valid three " + names[type], new Rules(), good(type).bytes());
            emit("valid nulls and headers " + names[type], new Rules(), new Batch(type, record(0, 5, null, null),
                record(1, -5, "", ""), record(2, 0, "key", "value", "h", "x", "", null, "h", "")).bytes());
            emit("valid long values " + names[type], new Rules(), new Batch(type, record(0, 0, "k", "v".repeat(140)),
                record(1, 0, "q".repeat(80), "ab".repeat(35))).bytes());
        }
        Batch idempotent = good(NONE);
        idempotent.producerId = 5;
        idempotent.producerEpoch = 0;
        idempotent.sequence = 0;
        emit("valid idempotent", new Rules(), idempotent.bytes());
        idempotent.sequence = Integer.MAX_VALUE;
        emit("valid sequence wraps", new Rules(), idempotent.bytes());
    }

    private static void headers() throws Exception {
        for (int type : new int[] {NONE, LZ4}) {
            String with = type == NONE ? " none" : " lz4";
            Batch b = good(type);
            b.baseOffset = 1;
            emit("base offset 1" + with, new Rules(), b.bytes());
            b = good(type);
            b.lastDelta = 3;
            emit("last delta too large" + with, new Rules(), b.bytes());
            b.lastDelta = 1;
            emit("last delta too small" + with, new Rules(), b.bytes());
            b.lastDelta = -1;
            emit("last delta negative" + with, new Rules(), b.bytes());
            b = good(type);
            b.count = 0;
            emit("count 0" + with, new Rules(), b.bytes());
            b.count = -1;
            emit("count negative" + with, new Rules(), b.bytes());
            b.count = 2;
            b.lastDelta = 1;
            emit("more records than counted" + with, new Rules(), b.bytes());
            b.count = 4;
            b.lastDelta = 3;
            emit("fewer records than counted" + with, new Rules(), b.bytes());
            emit("control batch" + with, new Rules(), good(type | CONTROL).bytes());
            emit("transactional without producer id" + with, new Rules(), good(type | TRANSACTIONAL).bytes());
            b = good(type);
            b.producerId = 5;
            b.producerEpoch = 0;
            emit("producer id without sequence" + with, new Rules(), b.bytes());
            b.producerId = -5;
            emit("producer id -5" + with, new Rules(), b.bytes());
            b = good(type);
            b.crcXor = 1;
            emit("wrong crc" + with, new Rules(), b.bytes());
            b = good(type | 0x7f80);
            emit("unknown attributes" + with, new Rules(), b.bytes());
            b.maxTimestamp = NOW - 1;
            emit("unknown attributes and wrong max timestamp" + with, new Rules(), b.bytes());
        }
        for (int type = 5; type <= 7; type++)
            emit("codec " + type, new Rules(), good(type).bytes());
    }

    private static void framing() throws Exception {
        byte[] valid = good(NONE).bytes();
        emit("empty", new Rules(), new byte[0]);
        emit("11 bytes", new Rules(), Arrays.copyOf(valid, 11));
        emit("16 bytes", new Rules(), Arrays.copyOf(valid, 16));
        emit("60 bytes", new Rules(), Arrays.copyOf(valid, 60));
        emit("one byte short", new Rules(), Arrays.copyOf(valid, valid.length - 1));
        for (int magic : new int[] {0, 1, 3, -1}) {
            Batch b = good(NONE);
            b.magic = magic;
            emit("magic " + magic, new Rules(), b.bytes());
        }
        for (int length : new int[] {0, -1, 13, 14, 20, 48, Integer.MAX_VALUE}) {
            Batch b = good(NONE);
            b.length = length;
            emit("length " + length, new Rules(), b.bytes());
        }
        emit("two batches", new Rules(), join(valid, valid));
        emit("trailing 5 bytes", new Rules(), join(valid, new byte[5]));
        emit("trailing 20 zeros", new Rules(), join(valid, new byte[20]));
        emit("trailing half batch", new Rules(), join(valid, Arrays.copyOf(valid, 40)));
        byte[] badMagic = Arrays.copyOf(valid, 40);
        badMagic[16] = 9;
        emit("trailing half batch of bad magic", new Rules(), join(valid, badMagic));
        Rules rules = new Rules();
        rules.maxMessageBytes = valid.length;
        emit("exactly max.message.bytes", rules, valid);
        rules.maxMessageBytes = valid.length - 1;
        emit("one above max.message.bytes", rules, valid);
    }

    private static void timestamps() throws Exception {
        for (int type : new int[] {NONE, ZSTD}) {
            String with = type == NONE ? " none" : " zstd";
            Batch b = new Batch(type, record(0, -3, "k", "v"), record(1, 10, "k", "v"), record(2, 10, "k", "v"));
            b.maxTimestamp = NOW + 999;
            emit("max timestamp wrong" + with, new Rules(), b.bytes());
            b = new Batch(type | LOG_APPEND_TIME, single(0), single(1));
            emit("log append time from client" + with, new Rules(), b.bytes());
            b.maxTimestamp = -1;
            emit("log append time from client without timestamp" + with, new Rules(), b.bytes());
            Rules append = new Rules();
            append.logAppendTime = true;
            b.maxTimestamp = NOW;
            emit("log append time from client to such a topic" + with, append, b.bytes());
            emit("log append time topic" + with, append, good(type).bytes());
            b = good(type);
            b.baseTimestamp = 5;
            b.maxTimestamp = 5;
            append.before = 10;
            emit("log append time topic takes any timestamp" + with, append, b.bytes());
            b = good(type);
            b.baseTimestamp = -1;
            b.maxTimestamp = -1;
            emit("no timestamps" + with, new Rules(), b.bytes());
            Rules range = new Rules();
            range.before = 1000;
            range.after = 2000;
            for (long delta : new long[] {-1000, -1001, 2000, 2001, Long.MIN_VALUE}) {
                b = new Batch(type, single(0), record(1, delta, "k", "v"), single(2), record(3, delta, "k", "v"));
                b.maxTimestamp = NOW + Math.max(delta, 0);
                emit("timestamp delta " + delta + with, range, b.bytes());
            }
            b = new Batch(type, single(0));
            b.baseTimestamp = Long.MIN_VALUE;
            emit("timestamp least" + with, range, b.bytes());
            emit("timestamp least, default range" + with, new Rules(), b.bytes());
        }
    }

    private static void keys() throws Exception {
        Rules compacted = new Rules();
        compacted.compacted = true;
        compacted.before = 1000;
        for (int type : new int[] {NONE, SNAPPY}) {
            String with = type == NONE ? " none" : " snappy";
            emit("compacted keys" + with, compacted, new Batch(type, single(0), record(1, 0, "", "v")).bytes());
            emit("compacted null keys" + with, compacted,
                new Batch(type, single(0), record(1, 0, null, "v"), record(2, 0, null, null)).bytes());
            emit("compacted null key and timestamp" + with, compacted,
                new Batch(type, record(0, -5000, "k", "v"), record(1, 0, null, "v"), record(2, -5000, null, "v")).bytes());
        }
    }

    private static byte[] fields(int keyLength, int valueLength, int headerCount, int headerKeyLength, int left)
        throws IOException {
        return body(out -> {
            out.write(0);
            ByteUtils.writeVarlong(0, out);
            ByteUtils.writeVarint(0, out);
            ByteUtils.writeVarint(keyLength, out);
            ByteUtils.writeVarint(valueLength, out);
            ByteUtils.writeVarint(headerCount, out);
            if (headerKeyLength > Integer.MIN_VALUE) {
                ByteUtils.writeVarint(headerKeyLength, out);
                ByteUtils.writeVarint(-1, out);
            }
            out.write(new byte[left]);
        });
    }

    private static byte[] lengthOnly(int claimed, byte[] content) throws IOException {
        return raw(out -> {
            ByteUtils.writeVarint(claimed, out);
            out.write(content);
        });
    }

    private static void structure() throws Exception {
        int no = Integer.MIN_VALUE;
        for (int type : new int[] {NONE, GZIP}) {
            String with = type == NONE ? " none" : " gzip";
            byte[] inside = Arrays.copyOfRange(single(0), 1, single(0).length);
            emit("record length too large" + with, new Rules(), new Batch(type, lengthOnly(500, inside)).bytes());
            emit("record length huge" + with, new Rules(), new Batch(type, lengthOnly(2000000000, inside)).bytes());
            emit("record length negative" + with, new Rules(), new Batch(type, lengthOnly(-1, inside)).bytes());
            emit("record length 0" + with, new Rules(), new Batch(type, lengthOnly(0, new byte[0])).bytes());
            emit("record length too small" + with, new Rules(), new Batch(type, lengthOnly(5, inside)).bytes());
            emit("record bytes left" + with, new Rules(), new Batch(type, fields(-1, -1, 0, no, 2)).bytes());
            emit("key length over record" + with, new Rules(), new Batch(type, fields(100, -1, 0, no, 0)).bytes());
            emit("key length -2" + with, new Rules(), new Batch(type, fields(-2, -2, 0, no, 0)).bytes());
            emit("value length over record" + with, new Rules(), new Batch(type, fields(-1, 100, 0, no, 0)).bytes());
            emit("header count -1" + with, new Rules(), new Batch(type, fields(-1, -1, -1, no, 0)).bytes());
            emit("header count huge" + with, new Rules(), new Batch(type, fields(-1, -1, 2000000000, no, 0)).bytes());
            emit("header key null" + with, new Rules(), new Batch(type, fields(-1, -1, 1, -1, 0)).bytes());
            emit("header key over record" + with, new Rules(), new Batch(type, fields(-1, -1, 1, 50, 0)).bytes());
            emit("one empty header" + with, new Rules(), new Batch(type, fields(-1, -1, 1, 0, 0)).bytes());
            byte[] overlong = {14, 0, 0, (byte) 0x80, (byte) 0x80, (byte) 0x80, (byte) 0x80, (byte) 0x80, 0};
            emit("varint of six bytes" + with, new Rules(), new Batch(type, overlong).bytes());
            byte[] attributes = single(0);
            attributes[1] = 0x55;
            emit("record attributes set" + with, new Rules(), new Batch(type, attributes).bytes());
        }
    }

    private static void offsets() throws Exception {
        for (int type : new int[] {NONE, LZ4}) {
            String with = type == NONE ? " none" : " lz4";
            emit("offset deltas repeat" + with, new Rules(), new Batch(type, single(0), single(0)).bytes());
            emit("offset deltas with a gap" + with, new Rules(), new Batch(type, single(0), single(2)).bytes());
            emit("offset deltas from 1" + with, new Rules(), new Batch(type, single(1), single(2)).bytes());
            emit("offset delta negative" + with, new Rules(), new Batch(type, single(-1), single(1)).bytes());
        }
    }

    private static void codecs() throws Exception {
        String[] names = {"none", "gzip", "snappy", "lz4", "zstd"};
        for (int type = GZIP; type <= ZSTD; type++) {
            Batch b = good(type);
            byte[] payload = b.payload;
            b.payload = Arrays.copyOf(payload, payload.length - 5);
            emit("cut " + names[type], new Rules(), b.bytes());
            b.payload = new byte[0];
            emit("empty " + names[type], new Rules(), b.bytes());
            b.payload = new byte[40];
            emit("zeros " + names[type], new Rules(), b.bytes());
            b.payload = payload.clone();
            b.payload[payload.length / 2] ^= 0x55;
            emit("damaged middle " + names[type], new Rules(), b.bytes());
            b.payload = join(payload, new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
            emit("garbage behind " + names[type], new Rules(), b.bytes());
            Batch two = new Batch(NONE, single(0), single(1));
            two.attributes = type;
            two.payload = join(compress(type, single(0)), compress(type, single(1)));
            emit("two streams " + names[type], new Rules(), two.bytes());
        }
        Batch raw = new Batch(NONE, single(0));
        raw.attributes = SNAPPY;
        raw.payload = org.xerial.snappy.Snappy.compress(single(0));
        emit("bare snappy block", new Rules(), raw.bytes());
        Rules old = new Rules();
        old.version = 6;
        emit("zstd at version 6", old, good(ZSTD).bytes());
        emit("lz4 at version 6", old, good(LZ4).bytes());
    }

    private static void targets() throws Exception {
        for (String target : new String[] {"uncompressed", "gzip", "snappy", "lz4", "zstd"}) {
            Rules rules = new Rules();
            rules.compression = target;
            emit("none to " + target, rules, good(NONE).bytes());
            emit("lz4 to " + target, rules, good(LZ4).bytes());
            Batch b = new Batch(GZIP, record(0, 0, "k", "v".repeat(5000)));
            rules.maxMessageBytes = 1000;
            emit("large gzip to " + target, rules, b.bytes());
        }
    }
}
