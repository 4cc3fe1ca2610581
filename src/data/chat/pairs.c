// Lines whose sample is two documents: a chosen and a rejected answer, or an answer and that of
// another line after the same prompt; and groups of completions, of which each is a sample.
#include "data/chat/chat_internal.h"

#include <math.h>
#include <string.h>

static status half_add(const chat_record *r, const data_sample *half, data_sample *out)
{
    if (half->ids.count == 0) return record_fails(r, "a prompt and an answer without a token");
    TRY(data_bytes_add(&out->trained, half->trained.items, half->trained.count));
    TRY(data_ids_add(&out->ids, half->ids.items, half->ids.count));
    out->turns += half->turns;
    out->ended += half->ended;
    out->empty_prompt = out->empty_prompt || half->empty_prompt;
    return ST_OK;
}

// How the answers of a sample are read: after a prompt, or without its first `skip` messages.
typedef struct halves {
    const json *const *answers;
    const json *prompt;
    int64_t skip;
    status (*read)(data_chat *c, chat_record *r, const struct halves *h, int i);
} halves;

static status read_after_prompt(data_chat *c, chat_record *r, const halves *h, int i)
{
    return record_answer(c, r, h->prompt, h->answers[i], h->skip);
}

static status halves_encode(data_chat *c, chat_record *r, const halves *h, data_sample *out)
{
    data_sample half = {.turns = 0};
    status st = ST_OK;
    out->ids.count = out->trained.count = out->turns = out->ended = 0;
    out->empty_prompt = false;
    for (int i = 0; i < 2 && st == ST_OK; i++) {
        if (i == 1) out->second = out->ids.count;
        st = h->read(c, r, h, i);
        if (st == ST_OK) st = record_encode(c, r, &half);
        if (st == ST_OK) st = half_add(r, &half, out);
    }
    data_sample_deinit(&half);
    return st;
}

static bool is_same_message(const json *a, const json *b)
{
    static const char *const keys[] = {"role", "content"};
    for (int i = 0; i < COUNT_OF(keys); i++) {
        const char *x = json_text(json_get(a, keys[i]), NULL);
        const char *y = json_text(json_get(b, keys[i]), NULL);
        if (x == NULL || y == NULL || strcmp(x, y) != 0) return false;
    }
    return true;
}

// The messages that both lists begin with, but for the last of the shorter one.
static int64_t common_messages(const json *a, const json *b)
{
    const int64_t most = min_i64(json_count(a), json_count(b)) - 1;
    int64_t k = 0;
    while (k < most && is_same_message(json_at(a, k), json_at(b, k))) k++;
    return k;
}

// The bytes that both texts begin with, back to the end of a word, so that no word is cut.
static int64_t common_bytes(const json *a, const json *b)
{
    const char *x = json_text(a, ""), *y = json_text(b, "");
    const int64_t most = min_i64(json_text_bytes(a), json_text_bytes(b));
    int64_t k = 0;
    while (k < most && x[k] == y[k]) k++;
    while (k > 0 && x[k - 1] != ' ' && x[k - 1] != '\n') k--;
    while (k > 0 && x[k - 1] == ' ') k--; // the space belongs to the word after it
    return k;
}

// Texts whose first `skip` bytes are the prompt.
static status read_after_bytes(data_chat *c, chat_record *r, const halves *h, int i)
{
    (void)c;
    r->prompt = json_text(h->answers[i], "");
    r->prompt_bytes = h->skip;
    r->answer = r->prompt + h->skip;
    r->answer_bytes = json_text_bytes(h->answers[i]) - h->skip;
    return ST_OK;
}

// A pair without a prompt.
static status pair_split(data_chat *c, chat_record *r, const json *const *answers, data_sample *out)
{
    halves h = {.answers = answers, .read = read_after_prompt};
    if (json_kind_of(answers[0]) == JSON_LIST) {
        h.skip = common_messages(answers[0], answers[1]);
    } else {
        h.skip = common_bytes(answers[0], answers[1]);
        h.read = read_after_bytes;
    }
    return halves_encode(c, r, &h, out);
}

static status kinds_check(const chat_record *r, const json *prompt, const json *const *answers,
                          const char *names)
{
    const json_kind first = json_kind_of(answers[0]), second = json_kind_of(answers[1]);
    const bool known = first == JSON_TEXT || first == JSON_LIST;
    const bool fits = prompt == NULL || json_kind_of(prompt) == first;
    if (known && first == second && fits) return ST_OK;
    return record_fails(r, "%s are not texts or lists of messages, all of one kind", names);
}

static status read_pair(data_chat *c, const char *bytes, int64_t count, chat_record *r,
                        data_sample *out)
{
    static const char *const keys[] = {"prompt", "chosen", "rejected"};
    json *values[3] = {NULL, NULL, NULL};
    TRY(record_members(r, bytes, count, keys, 3, values));
    const json *prompt = json_kind_of(values[0]) == JSON_NULL_VALUE ? NULL : values[0];
    const json *const answers[] = {values[1], values[2]};
    TRY(kinds_check(r, prompt, answers, "\"prompt\", \"chosen\" and \"rejected\""));
    if (prompt == NULL) return pair_split(c, r, answers, out);
    const halves h = {.answers = answers, .prompt = prompt, .read = read_after_prompt};
    return halves_encode(c, r, &h, out);
}

static status label_of(const chat_record *r, const json *v, bool *out)
{
    const json_kind kind = json_kind_of(v);
    const int64_t number = kind == JSON_INT ? json_int(v, -1) : -1;
    *out = kind == JSON_BOOL ? json_bool(v, false) : number == 1;
    if (kind == JSON_BOOL || number == 0 || number == 1) return ST_OK;
    return record_fails(r, "\"label\" is missing or neither true nor false");
}

static status read_labelled(data_chat *c, const char *bytes, int64_t count, chat_record *r,
                            data_sample *out)
{
    static const char *const keys[] = {"prompt", "completion", "label"};
    json *values[3] = {NULL, NULL, NULL};
    TRY(record_members(r, bytes, count, keys, 3, values));
    const json *const answers[] = {values[1], c->previous != NULL ? c->previous : values[1]};
    TRY(label_of(r, values[2], &out->wanted));
    if (values[0] == NULL) return record_fails(r, "\"prompt\" is missing");
    TRY(kinds_check(r, values[0], answers, "\"prompt\" and \"completion\", of all lines,"));
    const halves h = {.answers = answers, .prompt = values[0], .read = read_after_prompt};
    TRY(halves_encode(c, r, &h, out));
    json_free(c->previous);
    c->previous = r->owned[1];
    r->owned[1] = NULL;
    return ST_OK;
}

// The reward of a completion over the mean of the line's.
static status advantage_of(const data_chat *c, const chat_record *r, const json *rewards,
                           data_sample *out)
{
    const int64_t n = json_count(rewards);
    double mean = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const json_kind kind = json_kind_of(json_at(rewards, i));
        if (kind != JSON_INT && kind != JSON_REAL) {
            return record_fails(r, "reward %lld is no number", (long long)i + 1);
        }
        mean += json_real(json_at(rewards, i), 0.0) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        squares += pow(json_real(json_at(rewards, i), 0.0) - mean, 2.0);
    }
    out->advantage = json_real(json_at(rewards, out->completion), 0.0) - mean;
    if (c->spec.divides && n > 1) out->advantage /= sqrt(squares / (double)(n - 1)) + 1e-4;
    return ST_OK;
}

// One number for each trained token of the sample.
static status numbers_read(const chat_record *r, const char *key, const json *lists,
                           const data_sample *sample, data_bytes *out)
{
    const json *list = json_at(lists, sample->completion);
    int64_t trained = 0;
    for (int64_t i = 0; i < sample->trained.count; i++) trained += sample->trained.items[i];
    out->count = 0;
    if (json_kind_of(list) != JSON_LIST || json_count(list) != trained) {
        return record_fails(r,
                            "\"%s\" has no list of %lld numbers for completion %lld, one for "
                            "each of its tokens",
                            key, (long long)trained, (long long)sample->completion + 1);
    }
    for (int64_t i = 0; i < trained; i++) {
        const double value = json_real(json_at(list, i), (double)NAN);
        if (!isfinite(value)) return record_fails(r, "\"%s\" holds what is no number", key);
        TRY(data_bytes_add(out, &value, (int64_t)sizeof(value)));
    }
    return ST_OK;
}

static status read_rollout(data_chat *c, const char *bytes, int64_t count, chat_record *r,
                           data_sample *out)
{
    static const char *const keys[] = {"prompt", "completions", "rewards", "old", "reference"};
    json *values[5] = {NULL, NULL, NULL, NULL, NULL};
    TRY(record_members(r, bytes, count, keys, 5, values));
    const int64_t n = json_count(values[1]);
    if (json_kind_of(values[1]) != JSON_LIST || json_kind_of(values[2]) != JSON_LIST ||
        json_kind_of(values[3]) != JSON_LIST || n == 0 || json_count(values[2]) != n) {
        return record_fails(r, "\"completions\", \"rewards\" and \"old\" are not three lists, one "
                               "item for each completion");
    }
    out->completions = n;
    const json *const answers[] = {json_at(values[1], out->completion),
                                   json_at(values[1], out->completion)};
    TRY(kinds_check(r, values[0], answers, "\"prompt\" and \"completions\""));
    TRY(record_answer(c, r, values[0], answers[0], 0));
    TRY(record_encode(c, r, out));
    TRY(advantage_of(c, r, values[2], out));
    TRY(numbers_read(r, keys[3], values[3], out, &out->old));
    out->reference.count = 0;
    if (values[4] == NULL && c->spec.compares) {
        return record_fails(r, "\"reference\" is missing, which objective.kl needs");
    }
    if (values[4] == NULL) return ST_OK;
    return numbers_read(r, keys[4], values[4], out, &out->reference);
}

status pair_encode(data_chat *c, const char *bytes, int64_t count, chat_record *r, data_sample *out)
{
    if (c->found == DATA_FORMAT_ROLLOUTS) return read_rollout(c, bytes, count, r, out);
    return c->found == DATA_FORMAT_PAIRS ? read_pair(c, bytes, count, r, out)
                                         : read_labelled(c, bytes, count, r, out);
}
