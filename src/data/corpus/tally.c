// Counts and samples of dropped documents: collected for a batch, added up for a file, written as
// JSON next to the work files, and read again.
#include "data/corpus/scan.h"
#include "data/tokenizer/family.h"

#include <string.h>

status scan_tally_init(arena *a, const build *b, scan_tally *t)
{
    *t = (scan_tally){.a = a, .b = b};
    TRY(arena_new(a, b->rule_count, &t->drops));
    return arena_new(a, b->rule_count, &t->sample_counts);
}

status build_add_text(text *t, const char *bytes, int64_t count)
{
    data_bytes repaired = {0};
    status st = utf8_repair(bytes, count, &repaired);
    if (st == ST_OK) st = data_bytes_add(&repaired, "", 1);
    // A NUL would end the text, and JSON keeps none.
    for (int64_t i = 0; st == ST_OK && i + 1 < repaired.count; i++) {
        if (repaired.items[i] == 0) repaired.items[i] = ' ';
    }
    if (st == ST_OK) st = text_add_json(t, repaired.items);
    data_bytes_deinit(&repaired);
    return st;
}

static status add_sample(scan_tally *t, int64_t rule, int64_t number, const char *line)
{
    scan_sample *s = NULL;
    TRY(arena_new(t->a, 1, &s));
    *s = (scan_sample){.rule = rule, .number = number, .line = line};
    if (t->last == NULL) {
        t->samples = s;
    } else {
        t->last->next = s;
    }
    t->last = s;
    t->sample_counts[rule]++;
    return ST_OK;
}

status scan_tally_drop(scan_tally *t, int64_t rule, const scan_dropped *d)
{
    ASSERT(rule >= 0 && rule < t->b->rule_count);
    t->drops[rule].documents++;
    t->drops[rule].bytes += d->bytes;
    if (t->sample_counts[rule] >= t->b->c->samples) return ST_OK;
    text line = {.a = t->a};
    TRY(text_add(&line, "\"id\": "));
    if (d->id != NULL) {
        TRY(build_add_text(&line, d->id, min_i64(d->id_bytes, BUILD_SAMPLE_BYTES)));
    } else {
        TRY(text_add(&line, "null"));
    }
    TRY(text_add(&line, ", \"bytes\": %lld, \"text\": ", (long long)d->text_bytes));
    int64_t cut = min_i64(d->text_bytes, BUILD_SAMPLE_BYTES);
    while (cut > 0 && cut < d->text_bytes && ((uint8_t)d->text[cut] & 0xc0) == 0x80) cut--;
    TRY(build_add_text(&line, d->text, cut));
    return add_sample(t, rule, d->number, line.bytes);
}

status scan_tally_add(scan_tally *whole, const scan_tally *batch)
{
    whole->rows += batch->rows;
    whole->text_bytes += batch->text_bytes;
    whole->changed += batch->changed;
    for (int64_t i = 0; i < whole->b->rule_count; i++) {
        whole->drops[i].documents += batch->drops[i].documents;
        whole->drops[i].bytes += batch->drops[i].bytes;
    }
    for (const scan_sample *s = batch->samples; s != NULL; s = s->next) {
        char *line = NULL;
        if (whole->sample_counts[s->rule] >= whole->b->c->samples) continue;
        TRY(arena_strdup(whole->a, s->line, &line));
        TRY(add_sample(whole, s->rule, s->number, line));
    }
    return ST_OK;
}

status scan_tally_write(build *b, arena *a, int64_t file_idx, const scan_tally *t)
{
    text out = {.a = a};
    char digits[33];
    char *path = NULL;
    TRY(text_add(&out,
                 "{\"format\": \"%s\", \"hash\": \"%s\", \"rows\": %lld, \"text_bytes\": %lld, "
                 "\"changed\": %lld, \"documents\": %lld, \"docs_bytes\": %lld, "
                 "\"index_bytes\": %lld,\n \"drops\": [",
                 t->format, hash128_text(t->hash, digits), (long long)t->rows,
                 (long long)t->text_bytes, (long long)t->changed, (long long)t->documents,
                 (long long)t->docs_bytes, (long long)t->index_bytes));
    for (int64_t i = 0; i < b->rule_count; i++) {
        TRY(text_add(&out, "%s[%lld, %lld]", i > 0 ? ", " : "", (long long)t->drops[i].documents,
                     (long long)t->drops[i].bytes));
    }
    TRY(text_add(&out, "],\n \"samples\": ["));
    for (const scan_sample *s = t->samples; s != NULL; s = s->next) {
        TRY(text_add(&out, "%s\n  {\"rule\": %lld, \"n\": %lld, %s}", s == t->samples ? "" : ",",
                     (long long)s->rule, (long long)s->number, s->line));
    }
    TRY(text_add(&out, "]}\n"));
    TRY(build_path(b, a, file_idx, "json", &path));
    return host_write_all(b->h, path, out.bytes, out.length);
}

// ---- reading ------------------------------------------------------------------------------------

bool build_hash_parse(const char *digits, hash128 *out)
{
    uint64_t halves[2] = {0, 0};
    if (strlen(digits) != 32) return false;
    for (int i = 0; i < 32; i++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, digits[i]);
        if (at == NULL) return false;
        halves[i / 16] = halves[i / 16] << 4 | (uint64_t)(at - hex);
    }
    *out = (hash128){.high = halves[0], .low = halves[1]};
    return true;
}

static status take(build *b, int64_t i, const json *j, bool *found)
{
    build_file *f = &b->files[i];
    char *docs = NULL, *index = NULL, *format = NULL;
    file_info docs_info, index_info;
    TRY(build_path(b, b->a, i, "docs", &docs));
    TRY(build_path(b, b->a, i, "index", &index));
    TRY(b->h->api->path_info(b->h, docs, &docs_info));
    TRY(b->h->api->path_info(b->h, index, &index_info));
    const json *drops = json_get(j, "drops");
    *found = docs_info.bytes == json_int(json_get(j, "docs_bytes"), -1) &&
             index_info.bytes == json_int(json_get(j, "index_bytes"), -1) &&
             json_count(drops) == b->rule_count &&
             build_hash_parse(json_text(json_get(j, "hash"), ""), &f->hash);
    if (!*found) return ST_OK;
    f->rows = json_int(json_get(j, "rows"), 0);
    f->text_bytes = json_int(json_get(j, "text_bytes"), 0);
    f->changed = json_int(json_get(j, "changed"), 0);
    TRY(arena_strdup(b->a, json_text(json_get(j, "format"), ""), &format));
    f->format = format;
    TRY(arena_new(b->a, b->rule_count, &f->drops));
    for (int64_t k = 0; k < b->rule_count; k++) {
        f->drops[k].documents = json_int(json_at(json_at(drops, k), 0), 0);
        f->drops[k].bytes = json_int(json_at(json_at(drops, k), 1), 0);
    }
    return ST_OK;
}

status build_scan_load(build *b, int64_t file_idx, bool *found)
{
    char *path = NULL;
    file_info info;
    json *j = NULL;
    *found = false;
    TRY(build_path(b, b->a, file_idx, "json", &path));
    TRY(b->h->api->path_info(b->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    const status read = json_read(b->h, path, BUILD_JSON_MAX, &j);
    if (read == ST_DAMAGED) { // the file is scanned again
        error_clear();
        return ST_OK;
    }
    TRY(read);
    const status st = take(b, file_idx, j, found);
    json_free(j);
    return st;
}
