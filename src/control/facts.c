// Compares ranks' facts and explains a difference. A fingerprint record holds, per fact: kind (1
// byte), key, NUL, value, NUL. The sender proved that it holds the key, but the parser trusts it no
// more than a stranger.
#include "control/facts.h"

#include "control/crypto.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 96, DIFFERENCES_MAX = 2 };

const char *control_fact_kind_name(control_fact_kind kind)
{
    static const char *const names[CONTROL_FACT_KINDS] = {"build", "configuration", "data",
                                                          "numerics"};
    return (unsigned)kind < CONTROL_FACT_KINDS ? names[kind] : "?";
}

void control_facts_digest(const control_fact *facts, int64_t count,
                          uint8_t out[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES])
{
    for (int kind = 0; kind < CONTROL_FACT_KINDS; kind++) {
        control_sha256 s;
        uint8_t whole[CONTROL_HASH_BYTES];
        control_sha256_begin(&s);
        for (int64_t i = 0; i < count; i++) {
            if ((int)facts[i].kind != kind) continue;
            control_sha256_add(&s, facts[i].key, (int64_t)strlen(facts[i].key) + 1);
            control_sha256_add(&s, facts[i].value, (int64_t)strlen(facts[i].value) + 1);
        }
        control_sha256_end(&s, whole);
        memcpy(out[kind], whole, CONTROL_DIGEST_BYTES);
    }
}

status control_record_print(const control_fact *facts, int64_t count, text *out)
{
    if (count > CONTROL_FACTS_MAX) {
        return fail(ST_USAGE, "a rank has %lld facts, at most %d are allowed", (long long)count,
                    CONTROL_FACTS_MAX);
    }
    for (int64_t i = 0; i < count; i++) {
        const uint8_t kind = (uint8_t)facts[i].kind;
        TRY(text_add_bytes(out, &kind, 1));
        TRY(text_add_bytes(out, facts[i].key, (int64_t)strlen(facts[i].key) + 1));
        TRY(text_add_bytes(out, facts[i].value, (int64_t)strlen(facts[i].value) + 1));
    }
    if (out->length > CONTROL_RECORD_BYTES_MAX) {
        return fail(ST_USAGE, "a rank has %lld bytes of facts, at most %d are allowed",
                    (long long)out->length, CONTROL_RECORD_BYTES_MAX);
    }
    return ST_OK;
}

// Reads one fact of a fingerprint record; returns false at its end or where it is malformed.
static bool next_fact(const control_side *side, int64_t *at, control_fact *out)
{
    const uint8_t *begin = side->record + *at, *end = side->record + side->record_bytes;
    if (side->record == NULL || begin >= end || *begin >= CONTROL_FACT_KINDS) return false;
    const uint8_t *key = begin + 1;
    const uint8_t *key_end = memchr(key, 0, (size_t)(end - key));
    if (key_end == NULL) return false;
    const uint8_t *value = key_end + 1;
    const uint8_t *value_end = value < end ? memchr(value, 0, (size_t)(end - value)) : NULL;
    if (value_end == NULL) return false;
    *out = (control_fact){(control_fact_kind)*begin, (const char *)key, (const char *)value};
    *at = value_end + 1 - side->record;
    return true;
}

// Returns the value that `side` gives for a key, or NULL. It searches from *hint on, then from the
// start, so that nearly equal lists are compared in linear time.
static const char *value_of(const control_side *side, const control_fact *wanted, int64_t *hint)
{
    control_fact f;
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = pass == 0 ? *hint : 0, steps = 0;
        // The second pass is bounded, so that hostile lists do not cost quadratic time.
        while (steps++ < (pass == 0 ? 8 : CONTROL_FACTS_MAX) && next_fact(side, &at, &f)) {
            if (f.kind == wanted->kind && strcmp(f.key, wanted->key) == 0) {
                *hint = at;
                return f.value;
            }
        }
    }
    return NULL;
}

// Copies a peer's value for people to read: printable and cut to a limit.
static const char *shown(const char *value, char out[SHOWN_MAX + 4])
{
    int64_t n = 0;
    for (; value[n] != '\0' && n < SHOWN_MAX; n++) {
        const unsigned char c = (unsigned char)value[n];
        out[n] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    memcpy(out + n, value[n] == '\0' ? "" : "...", value[n] == '\0' ? 1 : 4);
    return out;
}

typedef struct sentence {
    char *bytes;
    int64_t limit, length;
} sentence;

static void say(sentence *s, const char *format, ...) PRINTF_LIKE(2, 3);
static void say(sentence *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int64_t left = s->limit - s->length;
    const int n = vsnprintf(s->bytes + s->length, (size_t)left, format, args);
    va_end(args);
    if (n > 0) s->length += min_i64(n, left - 1);
}

// Lists facts of `from` that `other` gives differently or not at all.
static int differences(const control_side *from, const control_side *other, bool from_is_odd,
                       sentence *out, int said)
{
    int64_t at = 0, hint = 0, looked = 0;
    control_fact f;
    const int rest = from_is_odd ? other->count : from->count;
    while (said < DIFFERENCES_MAX && looked++ < CONTROL_FACTS_MAX && next_fact(from, &at, &f)) {
        const char *theirs = value_of(other, &f, &hint);
        if (theirs != NULL && (!from_is_odd || strcmp(theirs, f.value) == 0)) continue;
        char key[SHOWN_MAX + 4], here[SHOWN_MAX + 4], there[SHOWN_MAX + 4];
        const char *odd_value = from_is_odd ? f.value : "not given";
        const char *rest_value = !from_is_odd ? f.value : theirs == NULL ? "not given" : theirs;
        say(out, "%s%s is %s there and %s on the other %d rank%s", said == 0 ? "" : "; ",
            shown(f.key, key), shown(odd_value, here), shown(rest_value, there), rest,
            text_plural(rest, "s"));
        said++;
    }
    return said;
}

void control_facts_explain(const control_side *odd, const control_side *rest, unsigned kinds,
                           char *out, int64_t limit_bytes)
{
    ASSERT(limit_bytes > 0);
    sentence s = {.bytes = out, .limit = limit_bytes};
    out[0] = '\0';
    say(&s, "rank %d (%s) was refused: ", odd->rank, odd->host);
    int said = 0;
    if (odd->record != NULL && rest->record != NULL) {
        said = differences(odd, rest, true, &s, 0);
        said = differences(rest, odd, false, &s, said);
    }
    if (said == 0) {
        const char *separator = "its ";
        for (int kind = 0; kind < CONTROL_FACT_KINDS; kind++) {
            if ((kinds >> kind & 1) == 0) continue;
            say(&s, "%s%s", separator, control_fact_kind_name((control_fact_kind)kind));
            separator = " and ";
        }
        const bool is_one = (kinds & (kinds - 1)) == 0;
        say(&s, " %s of the other %d rank%s", is_one ? "differs from that" : "differ from those",
            rest->count, text_plural(rest->count, "s"));
    }
    const bool is_build = (kinds & 1u << CONTROL_BUILD) != 0;
    say(&s, "; start all ranks with the same %s", is_build ? "build" : "run.yaml");
}
