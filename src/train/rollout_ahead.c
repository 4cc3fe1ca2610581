// The queue is a ring: the batch of step s has place s % capacity. Nine digits say every fp32, and
// seventeen every double.
#include "train/rollout_ahead.h"

#include <string.h>

status rollout_ahead_init(arena *a, rollout_ahead *q)
{
    TRY(arena_new(a, q->capacity, &q->batches));
    for (int64_t i = 0; i < q->capacity; i++) {
        rollout_batch *b = &q->batches[i];
        TRY(arena_new(a, q->rows, &b->rewards));
        TRY(arena_new(a, q->rows, &b->prompts));
        TRY(arena_new(a, q->rows, &b->lengths));
        TRY(arena_new(a, q->rows, &b->ended));
        TRY(arena_new(a, q->rows * q->tokens, &b->ids));
        TRY(arena_new(a, q->rows * q->tokens, &b->losses));
    }
    return ST_OK;
}

rollout_batch *rollout_ahead_at(const rollout_ahead *q, int64_t step)
{
    return &q->batches[step % q->capacity];
}

static status sequence_print(const rollout_ahead *q, const rollout_batch *b, int64_t i, text *out)
{
    TRY(text_add(out, "%s\n{\"prompt\": %d, \"reward\": %.17g, \"ended\": %d, \"ids\": [",
                 i > 0 ? "," : "", (int)b->prompts[i], b->rewards[i], (int)b->ended[i]));
    for (int64_t t = 0; t < b->lengths[i]; t++) {
        TRY(text_add(out, "%s%d", t > 0 ? ", " : "", (int)b->ids[i * q->tokens + t]));
    }
    TRY(text_add(out, "], \"losses\": ["));
    for (int64_t t = 0; t < b->lengths[i]; t++) {
        TRY(text_add(out, "%s%.9g", t > 0 ? ", " : "", (double)b->losses[i * q->tokens + t]));
    }
    return text_add(out, "]}");
}

status rollout_ahead_print(const rollout_ahead *q, int64_t step, text *out)
{
    TRY(text_add(out, "{\"batches\": ["));
    for (int64_t n = step + 1; n <= q->last; n++) {
        const rollout_batch *b = rollout_ahead_at(q, n);
        ASSERT(b->step == n);
        TRY(text_add(out, "%s\n{\"step\": %lld, \"sequences\": [", n > step + 1 ? "," : "",
                     (long long)n));
        for (int64_t i = 0; i < b->count; i++) TRY(sequence_print(q, b, i, out));
        TRY(text_add(out, "]}"));
    }
    return text_add(out, "\n]}\n");
}

static bool sequence_take(const rollout_ahead *q, const json *from, rollout_batch *b, int64_t i)
{
    const json *ids = json_get(from, "ids"), *losses = json_get(from, "losses");
    const int64_t count = json_count(ids), prompt = json_int(json_get(from, "prompt"), -1);
    if (prompt < 0 || prompt >= q->prompts) return false;
    if (json_kind_of(ids) != JSON_LIST || count < 1 || count > q->tokens) return false;
    if (json_kind_of(losses) != JSON_LIST || json_count(losses) != count) return false;
    b->prompts[i] = (int32_t)prompt;
    b->rewards[i] = json_real(json_get(from, "reward"), 0.0);
    b->ended[i] = json_int(json_get(from, "ended"), 0) != 0 ? 1 : 0;
    b->lengths[i] = (int32_t)count;
    for (int64_t t = 0; t < count; t++) {
        const int64_t id = json_int(json_at(ids, t), -1);
        if (id < 0 || id > INT32_MAX) return false;
        b->ids[i * q->tokens + t] = (int32_t)id;
        b->losses[i * q->tokens + t] = (float)json_real(json_at(losses, t), 0.0);
    }
    return true;
}

status rollout_ahead_read(rollout_ahead *q, int64_t step, const json *root, const char *path)
{
    const json *batches = json_get(root, "batches");
    bool is_right = json_kind_of(batches) == JSON_LIST && json_count(batches) <= q->capacity;
    q->last = step;
    for (int64_t n = 0; n < json_count(batches) && is_right; n++) {
        const json *from = json_at(batches, n), *sequences = json_get(from, "sequences");
        const int64_t at = json_int(json_get(from, "step"), -1), count = json_count(sequences);
        is_right = at == step + 1 + n && json_kind_of(sequences) == JSON_LIST && count >= 1 &&
                   count <= q->rows;
        rollout_batch *b = rollout_ahead_at(q, step + 1 + n);
        b->step = step + 1 + n;
        b->count = count;
        for (int64_t i = 0; i < count && is_right; i++) {
            is_right = sequence_take(q, json_at(sequences, i), b, i);
        }
        q->last = step + 1 + n;
    }
    if (is_right) return ST_OK;
    return fail(ST_DAMAGED,
                "%s/rollouts.json: batches of at most %lld sequences from step %lld on are "
                "expected, each with at most %lld tokens behind one of %lld prompts",
                path, (long long)q->rows, (long long)step + 1, (long long)q->tokens,
                (long long)q->prompts);
}
