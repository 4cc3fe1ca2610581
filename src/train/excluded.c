// Reads data.curriculum, and keeps the record of exclusions.
#include "train/excluded.h"

#include "base/format/json.h"
#include "data/reader.h"

#include <string.h>

#define RECORD "excluded.jsonl"

// ---- curriculum ---------------------------------------------------------------------------------

static status bad_phase(const char *item)
{
    return fail(
        ST_CONFIG_RANGE,
        "data.curriculum: \"%.80s\": a step and the weights of all sources expected, such as "
        "1000=0.5:0.5",
        item);
}

static status parse_phase(arena *a, const char *item, int64_t *step, data_phase *out)
{
    const char *equals = strchr(item, '=');
    char *head = NULL, *rest = NULL;
    double *weights = NULL;
    if (equals == NULL) return bad_phase(item);
    TRY(arena_format(a, &head, "%.*s", (int)(equals - item), item));
    TRY(arena_strdup(a, equals + 1, &rest));
    if (!text_parse_i64(head, step) || *step < 0) return bad_phase(item);
    TRY(arena_new(a, (int64_t)strlen(rest) + 1, &weights));
    for (char *at = rest; at != NULL;) {
        char *colon = strchr(at, ':');
        if (colon != NULL) *colon = 0;
        double value = 0.0;
        if (!text_parse_f64(at, &value) || !(value >= 0.0) || value > 1e12) return bad_phase(item);
        weights[out->weight_count++] = value;
        at = colon != NULL ? colon + 1 : NULL;
    }
    out->weights = weights;
    return ST_OK;
}

status train_curriculum(arena *a, const run_config *r, data_phase **out)
{
    const option_list *list = &r->data.curriculum;
    int64_t before = 0, sequences = 0; // steps so far, and their sequences
    *out = NULL;
    if (list->count == 0) return ST_OK;
    TRY(arena_new(a, list->count, out));
    for (int64_t i = 0; i < list->count; i++) {
        int64_t step = 0;
        TRY(parse_phase(a, list->items[i], &step, &(*out)[i]));
        if (i > 0 && step < before) {
            return fail(ST_CONFIG_RANGE, "data.curriculum: step %lld comes after step %lld",
                        (long long)step, (long long)before + 1);
        }
        // Step s is the first with these weights; steps count from 1, and 0 means the beginning.
        for (; before + 1 < step; before++) sequences += run_config_batch(r, before);
        (*out)[i].first = sequences;
    }
    return ST_OK;
}

// ---- exclusions ---------------------------------------------------------------------------------

static status add_line(const host *h, arena *a, const char *path, const char *const *entries,
                       int64_t count, int64_t first_step)
{
    text t = {.a = a};
    file *f = NULL;
    TRY(text_add(&t, "{\"first_step\": %lld, \"entries\": [", (long long)first_step));
    for (int64_t i = 0; i < count; i++) {
        TRY(text_add(&t, "%s", i > 0 ? ", " : ""));
        TRY(text_add_json(&t, entries[i]));
    }
    TRY(text_add(&t, "]}\n"));
    TRY(h->api->file_open(h, path, FILE_APPEND, &f));
    status st = h->api->file_write(f, t.bytes, t.length);
    if (st == ST_OK) st = h->api->file_sync(f);
    const status closed = h->api->file_close(f);
    return st != ST_OK ? st : closed;
}

static bool is_same(const train_excluded *was, const char *const *entries, int64_t count)
{
    if ((was != NULL ? was->count : 0) != count) return false;
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(was->entries[i], entries[i]) != 0) return false;
    }
    return true;
}

status train_excluded_record(const host *h, arena *a, const char *run_dir, const run_config *r,
                             int64_t first_step)
{
    train_excluded *lines = NULL;
    const char *const *entries = NULL;
    int64_t line_count = 0, count = 0;
    char *path = NULL;
    TRY(train_excluded_read(h, a, run_dir, &lines, &line_count));
    if (r->data.exclude != NULL) TRY(data_exclusions_read(h, a, r->data.exclude, &entries, &count));
    // A line of a later step does not hold any more: the run goes on from before it.
    bool is_later = false;
    for (int64_t i = 0; i < line_count; i++)
        is_later = is_later || lines[i].first_step > first_step;
    if (!is_later && is_same(train_excluded_at(lines, line_count, first_step), entries, count)) {
        return ST_OK;
    }
    TRY(path_join(a, run_dir, RECORD, &path));
    return add_line(h, a, path, entries, count, first_step);
}

static status take_line(arena *a, const char *path, const data_line *line, train_excluded *out)
{
    static const char *const keys[] = {"first_step", "entries"};
    json *v[2] = {NULL, NULL};
    char **entries = NULL;
    TRY(json_parse_members(line->bytes, line->count, path, line->number, keys, 2, v));
    *out = (train_excluded){.first_step = json_int(v[0], -1), .count = json_count(v[1])};
    status st = arena_new(a, max_i64(1, out->count), &entries);
    for (int64_t i = 0; st == ST_OK && i < out->count; i++) {
        st = arena_strdup(a, json_text(json_at(v[1], i), ""), &entries[i]);
    }
    out->entries = (const char *const *)entries;
    if (st == ST_OK && out->first_step < 0) {
        st = fail(ST_DAMAGED, "%s:%lld: no \"first_step\"", path, (long long)line->number);
    }
    for (int i = 0; i < 2; i++) json_free(v[i]);
    return st;
}

status train_excluded_read(const host *h, arena *a, const char *run_dir, train_excluded **out,
                           int64_t *count)
{
    char *path = NULL;
    file_info info;
    data_documents *d = NULL;
    int64_t capacity = 0;
    *out = NULL;
    *count = 0;
    TRY(path_join(a, run_dir, RECORD, &path));
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_NONE || info.bytes == 0) return ST_OK;
    TRY(data_documents_open(h, path, 0, &d));
    status st = ST_OK;
    while (st == ST_OK) {
        data_line line;
        void *items = *out;
        st = data_documents_line(d, &line);
        if (st != ST_OK || line.bytes == NULL) break;
        st = arena_grow(a, &items, &capacity, *count + 1, sizeof(train_excluded));
        *out = items;
        if (st == ST_OK) st = take_line(a, path, &line, &(*out)[(*count)++]);
    }
    data_documents_close(d);
    return st;
}

const train_excluded *train_excluded_at(const train_excluded *lines, int64_t count, int64_t step)
{
    for (int64_t i = count; i-- > 0;) {
        if (lines[i].first_step <= step) return lines[i].count > 0 ? &lines[i] : NULL;
    }
    return NULL;
}
