import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URI;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Accepts the tokens of Amazon MSK: a URL that the owner of one AWS key signed (Signature Version 4), to connect.
 *
 * <p>The login module of the broker's listener has the options accessKey, secretKey and region.
 */
public class MskTokenValidator implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmssX");
    private static final long MAX_SECONDS = 900;
    private static final String ALGORITHM = "AWS4-HMAC-SHA256";

    private String accessKey;
    private String secretKey;
    private String region;

    private record Token(String value, Set<String> scope, long lifetimeMs, String principalName, Long startTimeMs)
            implements OAuthBearerToken {}

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> login) {
        Map<String, ?> options = login.get(0).getOptions();
        accessKey = (String) options.get("accessKey");
        secretKey = (String) options.get("secretKey");
        region = (String) options.get("region");
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback each : callbacks) {
            if (!(each instanceof OAuthBearerValidatorCallback callback)) {
                throw new UnsupportedCallbackException(each);
            }
            try {
                callback.token(checked(callback.tokenValue()));
            } catch (GeneralSecurityException | RuntimeException invalid) { // RuntimeException: it is no such URL
                callback.error("invalid_token", null, null);
            }
        }
    }

    @Override
    public void close() {}

    private Token checked(String text) throws GeneralSecurityException {
        String url = new String(Base64.getUrlDecoder().decode(text), UTF_8);
        String host = "kafka." + region + ".amazonaws.com";
        require(url.startsWith("https://" + host + "/?"));
        TreeMap<String, String> query = new TreeMap<>();
        for (String each : URI.create(url).getRawQuery().split("&")) {
            String[] pair = each.split("=", 2);
            require(query.put(pair[0], pair[1]) == null);
        }
        query.remove("User-Agent"); // the client adds it after it has signed the URL
        String signature = query.remove("X-Amz-Signature");
        String date = query.get("X-Amz-Date");
        String scope = String.join("/", date.substring(0, 8), region, "kafka-cluster", "aws4_request");
        require(query.get("Action").equals("kafka-cluster%3AConnect"));
        require(query.get("X-Amz-Algorithm").equals(ALGORITHM));
        require(query.get("X-Amz-Credential").equals((accessKey + "/" + scope).replace("/", "%2F")));
        require(query.get("X-Amz-SignedHeaders").equals("host"));

        String sorted = query.entrySet().stream().map(Object::toString).collect(Collectors.joining("&"));
        String request = String.join("\n", "GET", "/", sorted, "host:" + host, "", "host", hash(""));
        byte[] key = ("AWS4" + secretKey).getBytes(UTF_8);
        for (String each : scope.split("/")) {
            key = mac(key, each);
        }
        byte[] computed = mac(key, String.join("\n", ALGORITHM, date, scope, hash(request)));
        require(HexFormat.of().formatHex(computed).equals(signature));

        long seconds = Long.parseLong(query.get("X-Amz-Expires"));
        Instant start = Instant.from(TIME.parse(date));
        Instant end = start.plusSeconds(seconds);
        require(seconds <= MAX_SECONDS && Instant.now().isBefore(end));
        return new Token(text, Set.of(), end.toEpochMilli(), accessKey, start.toEpochMilli());
    }

    private static void require(boolean holds) throws GeneralSecurityException {
        if (!holds) {
            throw new GeneralSecurityException("invalid token");
        }
    }

    private static String hash(String text) throws GeneralSecurityException {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text.getBytes(UTF_8)));
    }

    private static byte[] mac(byte[] key, String text) throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(UTF_8));
    }
}
