// Prints what Apache Kafka's own jars say about its configuration keys, one JSON object per line: the data that
// test_tables.py compares pybroker's tables with. Run it when the Kafka version changes:
//   javac -cp 'LIBS/*' -d /tmp/dump DumpConfigKeys.java
//   java -cp 'LIBS/*:/tmp/dump' DumpConfigKeys > kafka-4.4.0-keys.jsonl
// where LIBS holds Kafka's jars. "probes" maps a text to the value Kafka makes of it, null if Kafka refuses the text.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public final class DumpConfigKeys {
    private static final Pattern NUMBER = Pattern.compile("-?\\d+");
    private static final Pattern WORD = Pattern.compile("\\w+");
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        dump("broker", AbstractKafkaConfig.CONFIG_DEF);
        dump("throttle", QuotaConfig.brokerQuotaConfigs());
        dump("topic", LogConfig.configDefCopy());
    }

    private static void dump(String table, ConfigDef definition) throws Exception {
        for (ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("table", table);
            line.put("name", key.name);
            line.put("type", key.type.name());
            line.put("required", key.defaultValue == ConfigDef.NO_DEFAULT_VALUE);
            line.put("default", line.get("required").equals(true) ? null : text(key.defaultValue, key.type));
            line.put("importance", key.importance.name());
            line.put("internal", key.internalConfig);
            line.put("mode", DynamicBrokerConfig.dynamicConfigUpdateModes().getOrDefault(key.name, "read-only"));
            line.put("synonyms", table.equals("topic") ? topicSynonyms(key.name) : List.of());
            line.put("probes", probes(key));
            System.out.println(JSON.writeValueAsString(line));
        }
    }

    private static List<List<String>> topicSynonyms(String name) {
        List<List<String>> found = new ArrayList<>();
        for (var synonym : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of())) {
            found.add(List.of(synonym.name(), synonym.converter().apply("1")));
        }
        return found;
    }

    private static Map<String, String> probes(ConfigKey key) {
        Map<String, String> results = new LinkedHashMap<>();
        for (String text : candidates(key)) {
            try {
                Object value = ConfigDef.parseType(key.name, text, key.type);
                if (key.validator != null) {
                    key.validator.ensureValid(key.name, value);
                }
                results.put(text, text(value, key.type));
            } catch (ConfigException refused) {
                results.put(text, null);
            }
        }
        return results;
    }

    private static TreeSet<String> candidates(ConfigKey key) {
        TreeSet<String> texts = new TreeSet<>();
        String validator = String.valueOf(key.validator);
        switch (key.type) {
            case INT, LONG, SHORT, DOUBLE -> {
                texts.addAll(List.of("-2", "-1", "0", "1", "x", "", " 7 ", "1.5", "+4"));
                texts.addAll(List.of("32768", "2147483648", "9223372036854775808"));
                NUMBER.matcher(validator).results().map(match -> Long.parseLong(match.group())).forEach(
                    bound -> texts.addAll(List.of("" + (bound - 1), "" + bound, "" + (bound + 1))));
                if (key.type == Type.DOUBLE) {
                    texts.addAll(List.of("1e3", "12345678.0", "0.0001", "0.51"));
                }
            }
            case BOOLEAN -> texts.addAll(List.of("true", "TRUE", " false ", "yes", "1", ""));
            case LIST -> {
                texts.addAll(List.of("", "a", "a,a", "a , b", ",", "a,,b", "0:1,1:2", "*", "0:x", "1@h:9"));
                List<String> words = WORD.matcher(validator).results().map(match -> match.group()).toList();
                texts.addAll(words);
                words.stream().limit(1).forEach(word -> texts.addAll(List.of(word + "," + word, word.toUpperCase())));
                texts.add(String.join(", ", words));
            }
            case STRING -> {
                texts.addAll(List.of("", " a b "));
                WORD.matcher(validator).results().map(match -> match.group()).forEach(
                    word -> texts.addAll(List.of(word, word.toLowerCase(), word.toUpperCase())));
            }
            case PASSWORD -> texts.addAll(List.of("", " x "));
            default -> { }
        }
        return texts;
    }

    private static String text(Object value, Type type) {
        return value instanceof Password password ? password.value() : ConfigDef.convertToString(value, type);
    }
}
