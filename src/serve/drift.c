#include "serve/drift.h"
#include "base/format/json.h"

#include <math.h>
#include <string.h>

enum { REFUSAL_BYTES = 200, ANSWERS_MAX = 1 << 30 };
const double drift_alert = 0.25;

// Upper bounds of the buckets; the last one has none.
static const struct {
    const char *name;
    int buckets;
    double bounds[DRIFT_BUCKETS - 1];
} quantities[DRIFT_COUNT] = {
    [DRIFT_PROMPT_TOKENS] = {"prompt_tokens",
                             13,
                             {4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384}},
    [DRIFT_ANSWER_TOKENS] = {"answer_tokens",
                             13,
                             {1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 8192}},
    [DRIFT_NATS] = {"answer_nats", 13, {0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8}},
    [DRIFT_REFUSALS] = {"refusals", 2, {0.5}},
};

const char *drift_name(drift_of of)
{
    return quantities[of].name;
}

// ---- answers ------------------------------------------------------------------------------------

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool drift_is_refusal(const char *bytes, int64_t count)
{
    static const char *const phrases[] = {
        "i cannot",        "i can't",          "i can not",   "i won't",       "i will not",
        "i'm sorry",       "i am sorry",       "i apologize", "i'm not able",  "i am not able",
        "i'm unable",      "i am unable",      "as an ai",    "cannot assist", "can't assist",
        "can't help with", "cannot help with",
    };
    char beginning[REFUSAL_BYTES + 1];
    int64_t n = 0;
    for (int64_t i = 0; i < count && n < REFUSAL_BYTES; i++) {
        // A typographic apostrophe (E2 80 99) counts as a plain one; a NUL ends nothing.
        if (count - i >= 3 && memcmp(bytes + i, "\xE2\x80\x99", 3) == 0) {
            beginning[n++] = '\'';
            i += 2;
        } else {
            beginning[n++] = bytes[i] == '\0' ? ' ' : lower(bytes[i]);
        }
    }
    beginning[n] = '\0';
    for (int64_t i = 0; i < COUNT_OF(phrases); i++) {
        if (strstr(beginning, phrases[i]) != NULL) return true;
    }
    return false;
}

static void count_value(drift_window *w, drift_of of, double value)
{
    int bucket = 0;
    while (bucket < quantities[of].buckets - 1 && value > quantities[of].bounds[bucket]) bucket++;
    w->counts[of][bucket]++;
}

void drift_add(drift_window *w, const drift_answer *answer)
{
    w->answers++;
    count_value(w, DRIFT_PROMPT_TOKENS, (double)answer->prompt_tokens);
    count_value(w, DRIFT_ANSWER_TOKENS, (double)answer->answer_tokens);
    count_value(w, DRIFT_NATS, answer->nats);
    count_value(w, DRIFT_REFUSALS, drift_is_refusal(answer->text, answer->bytes) ? 1.0 : 0.0);
}

double drift_index(const drift_window *now, const drift_window *reference, drift_of of)
{
    // A bucket without answers would make the index infinite: each has half an answer more.
    static const double half = 0.5;
    const int buckets = quantities[of].buckets;
    double sum = 0.0;
    if (now->answers == 0 || reference->answers == 0) return 0.0;
    const double n = (double)now->answers, m = (double)reference->answers;
    for (int i = 0; i < buckets; i++) {
        const double p = ((double)now->counts[of][i] + half) / (n + half * buckets);
        const double q = ((double)reference->counts[of][i] + half) / (m + half * buckets);
        sum += (p - q) * log(p / q);
    }
    return fmax(0.0, sum - (buckets - 1) * (1.0 / n + 1.0 / m));
}

// ---- files --------------------------------------------------------------------------------------

status drift_text(const drift_window *w, text *t)
{
    TRY(text_add(t, "{\"format\": \"trireme-drift\", \"version\": 1, \"answers\": %lld",
                 (long long)w->answers));
    for (int of = 0; of < DRIFT_COUNT; of++) {
        TRY(text_add(t, ",\n \"%s\": [", quantities[of].name));
        for (int i = 0; i < quantities[of].buckets; i++) {
            TRY(text_add(t, "%s%lld", i > 0 ? ", " : "", (long long)w->counts[of][i]));
        }
        TRY(text_add(t, "]"));
    }
    return text_add(t, "}\n");
}

static status counts_read(const json *root, const char *name, drift_of of, drift_window *out)
{
    const json *list = json_get(root, quantities[of].name);
    int64_t sum = 0;
    if (json_count(list) != quantities[of].buckets) {
        return fail(ST_DAMAGED, "%s: \"%s\" is not a list of %d counts", name, quantities[of].name,
                    quantities[of].buckets);
    }
    for (int i = 0; i < quantities[of].buckets; i++) {
        const int64_t count = json_int(json_at(list, i), -1);
        if (count < 0 || count > out->answers) {
            return fail(ST_DAMAGED, "%s: a count of \"%s\" is not a whole number from 0 to %lld",
                        name, quantities[of].name, (long long)out->answers);
        }
        out->counts[of][i] = count;
        sum += count;
    }
    if (sum == out->answers) return ST_OK;
    return fail(ST_DAMAGED, "%s: the counts of \"%s\" add up to %lld, \"answers\" says %lld", name,
                quantities[of].name, (long long)sum, (long long)out->answers);
}

static status window_read(const json *root, const char *name, drift_window *out)
{
    if (strcmp(json_text(json_get(root, "format"), ""), "trireme-drift") != 0 ||
        json_int(json_get(root, "version"), 0) != 1) {
        return fail(ST_DAMAGED, "%s: this is no file that serve --drift-record wrote", name);
    }
    out->answers = json_int(json_get(root, "answers"), -1);
    if (out->answers < 1 || out->answers > ANSWERS_MAX) {
        return fail(ST_DAMAGED, "%s: \"answers\" is not a whole number from 1 to %d", name,
                    (int)ANSWERS_MAX);
    }
    for (int of = 0; of < DRIFT_COUNT; of++) TRY(counts_read(root, name, (drift_of)of, out));
    return ST_OK;
}

status drift_read(const char *bytes, int64_t count, const char *name, drift_window *out)
{
    json *root = NULL;
    *out = (drift_window){0};
    TRY(json_parse(bytes, count, name, &root));
    const status st = window_read(root, name, out);
    json_free(root);
    return st;
}
