// Writes a step's record as JSON to metrics.jsonl, and as a line for people.
#include "observe/append.h"
#include "observe/observe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { METRICS_LIMIT_BYTES = 1 << 30 };

struct obs_metrics {
    const host *h;
    obs_append file;
    arena *a; // of a line
    char *path;
    struct {
        obs_goodput goodput;
        double time;
        bool is_there;
    } before;      // the newest step or loss when it was opened
    int64_t limit; // bytes; 0: the file is never rotated
};

// A rotated file is metrics-<last step>.jsonl next to metrics.jsonl.
static const char rotated_begin[] = "metrics-", rotated_end[] = ".jsonl";

static bool rotated_parse(const char *name, int64_t *last)
{
    const size_t begin = sizeof(rotated_begin) - 1;
    if (strncmp(name, rotated_begin, begin) != 0) return false;
    const char *digits = name + begin;
    const size_t count = strspn(digits, "0123456789");
    char number[20];
    if (count == 0 || count >= sizeof(number) || strcmp(digits + count, rotated_end) != 0) {
        return false;
    }
    (void)snprintf(number, sizeof(number), "%.*s", (int)count, digits);
    return text_parse_i64(number, last);
}

// Returns where the lines of steps after `finished` begin. A torn last line is cut, too.
static int64_t kept_bytes(const char *bytes, int64_t count, int64_t finished)
{
    int64_t at = 0;
    while (at < count) {
        const char *end = memchr(bytes + at, '\n', (size_t)(count - at));
        if (end == NULL) return at;
        int64_t step = 0;
        const char *p = bytes + at;
        static const char key[] = "{\"step\": ";
        if (end - p < (int64_t)sizeof(key) || memcmp(p, key, sizeof(key) - 1) != 0) return at;
        for (p += sizeof(key) - 1; p < end && *p >= '0' && *p <= '9'; p++) {
            if (step > finished) break;
            step = step * 10 + (*p - '0');
        }
        if (step > finished) return at;
        at = end - bytes + 1;
    }
    return at;
}

// Finds the newest step or loss in the lines that are kept. A line that is no JSON is none of ours.
static void before_find(obs_metrics *m, const char *bytes, int64_t count)
{
    for (int64_t end = count; end > 0 && !m->before.is_there;) {
        int64_t begin = end - 1;
        json *record = NULL;
        while (begin > 0 && bytes[begin - 1] != '\n') begin--;
        if (json_parse(bytes + begin, end - begin, m->path, &record) != ST_OK) {
            error_clear();
            return;
        }
        m->before.is_there = obs_goodput_read(record, &m->before.goodput);
        m->before.time = json_real(json_get(record, "time"), 0.0);
        json_free(record);
        end = begin;
    }
}

// Shortens the file where it is: a copy would need space, and a run that begins again after a loss
// may find the disk full.
static status file_cut(const host *h, const char *path, int64_t bytes)
{
    file *f = NULL;
    TRY(h->api->file_open(h, path, FILE_APPEND, &f));
    const status st = h->api->file_truncate(f, bytes);
    const status closed = h->api->file_close(f);
    return st != ST_OK ? st : closed;
}

// m: NULL if its newest step is not asked for.
static status cut_back(const host *h, const char *path, int64_t finished, obs_metrics *m)
{
    file_info info;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    arena *a = NULL;
    TRY(arena_create("metrics", 0, &a));
    char *bytes = NULL;
    int64_t count = 0;
    status st = host_read_all(h, a, path, METRICS_LIMIT_BYTES, &bytes, &count);
    if (st == ST_OK) {
        const int64_t kept = kept_bytes(bytes, count, finished);
        if (kept < count) st = file_cut(h, path, kept);
        if (m != NULL) before_find(m, bytes, kept);
    }
    arena_destroy(a);
    return st;
}

// A rotated file whose last step is not finished: the resumed run writes it again, so its name is
// metrics.jsonl again, and its later lines are cut. Those that begin later are removed.
static status rotated_cut(const host *h, arena *a, const char *folder, const char *path,
                          int64_t finished)
{
    file_names names;
    TRY(h->api->path_list(h, a, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *own = NULL;
        int64_t last = 0;
        file_info info;
        if (!rotated_parse(names.names[i], &last) || last <= finished) continue;
        TRY(path_join(a, folder, names.names[i], &own));
        TRY(cut_back(h, own, finished, NULL));
        TRY(h->api->path_info(h, own, &info));
        TRY(info.bytes > 0 ? h->api->path_rename(h, own, path) : h->api->path_remove(h, own));
    }
    return ST_OK;
}

static status folder_of(arena *a, const char *path, char **out)
{
    const int length = (int)(path_base_name(path) - path);
    return arena_format(a, out, "%.*s", length > 0 ? length : 2, length > 0 ? path : "./");
}

status obs_metrics_open(const host *h, arena *a, const obs_metrics_config *c, obs_metrics **out)
{
    obs_metrics *m = NULL;
    char *folder = NULL;
    TRY(arena_new(a, 1, &m));
    m->h = h;
    m->limit = c->limit_bytes;
    TRY(arena_strdup(a, c->path, &m->path));
    TRY(cut_back(h, c->path, c->finished_steps, m));
    TRY(folder_of(a, c->path, &folder));
    TRY(rotated_cut(h, a, folder, c->path, c->finished_steps));
    TRY(obs_append_open(h, c->path, &m->file));
    const status st = arena_create("metrics line", 0, &m->a);
    if (st != ST_OK) {
        (void)obs_append_close(&m->file);
        return st;
    }
    *out = m;
    return ST_OK;
}

// Gives the full file its own name and begins another. A failure costs nothing but the size: the
// file goes on growing.
static status rotate(obs_metrics *m, int64_t step)
{
    char *to = NULL;
    const int folder = (int)(path_base_name(m->path) - m->path);
    TRY(arena_format(m->a, &to, "%.*s%s%07lld%s", folder, m->path, rotated_begin, (long long)step,
                     rotated_end));
    TRY(obs_append_close(&m->file));
    const status moved = m->h->api->path_rename(m->h, m->path, to);
    error_record kept;
    error_take(&kept);
    TRY(obs_append_open(m->h, m->path, &m->file));
    return moved == ST_OK ? ST_OK : error_put(&kept);
}

static status number(text *t, const char *name, double value)
{
    if (!isfinite(value)) return text_add(t, ", \"%s\": null", name); // JSON has no NaN
    return text_add(t, ", \"%s\": %.9g", name, value);
}

// The buckets are in the order of run.json's "compression".
static status print_codec(const obs_record *r, text *out)
{
    TRY(number(out, "codec_error", r->codec_error));
    TRY(text_add(out, ", \"codec_bytes\": %lld, \"codec_errors\": [", (long long)r->codec_bytes));
    for (int64_t i = 0; i < r->codec_buckets; i++) {
        TRY(text_add(out, i == 0 ? "%.4g" : ", %.4g", r->codec_errors[i]));
    }
    return text_add(out, "]");
}

typedef enum load_field { LOAD_OF_MAX, LOAD_OF_ENTROPY, LOAD_OF_DROPPED } load_field;

static status print_layers(const obs_record *r, load_field field, const char *name, text *out)
{
    TRY(text_add(out, ", \"%s\": [", name));
    for (int64_t i = 0; i < r->load_count; i++) {
        const obs_load *l = &r->loads[i];
        const double value = field == LOAD_OF_MAX       ? l->max
                             : field == LOAD_OF_ENTROPY ? l->entropy
                                                        : l->dropped;
        TRY(text_add(out, i == 0 ? "%.4g" : ", %.4g", value));
    }
    return text_add(out, "]");
}

static obs_load load_worst(const obs_record *r)
{
    obs_load all = {.entropy = 1.0};
    for (int64_t i = 0; i < r->load_count; i++) {
        all.max = fmax(all.max, r->loads[i].max);
        all.entropy = fmin(all.entropy, r->loads[i].entropy);
        all.dropped += r->loads[i].dropped / (double)r->load_count;
        all.idle += r->loads[i].idle;
    }
    return all;
}

// The lists have a number for each layer with experts, from the bottom.
static status print_loads(const obs_record *r, text *out)
{
    const obs_load all = load_worst(r);
    TRY(text_add(out, ", \"moe_load_max\": %.4g, \"moe_dropped\": %.4g", all.max, all.dropped));
    TRY(text_add(out, ", \"moe_idle_experts\": %lld", (long long)all.idle));
    TRY(number(out, "moe_aux_loss", r->aux_loss));
    TRY(print_layers(r, LOAD_OF_MAX, "moe_layers_load_max", out));
    TRY(print_layers(r, LOAD_OF_ENTROPY, "moe_layers_entropy", out));
    if (all.dropped > 0.0) TRY(print_layers(r, LOAD_OF_DROPPED, "moe_layers_dropped", out));
    TRY(text_add(out, ", \"moe_layers_idle\": ["));
    for (int64_t i = 0; i < r->load_count; i++) {
        TRY(text_add(out, i == 0 ? "%lld" : ", %lld", (long long)r->loads[i].idle));
    }
    return text_add(out, "]");
}

status obs_print_json(const obs_record *r, text *out)
{
    TRY(text_add(out, "{\"step\": %lld, \"tokens\": %lld, \"time\": %.3f", (long long)r->step,
                 (long long)r->tokens, r->time));
    TRY(number(out, "loss", r->loss));
    if (!isnan(r->val_loss)) TRY(number(out, "val_loss", r->val_loss));
    TRY(number(out, "grad_norm", r->grad_norm));
    TRY(number(out, "lr", r->lr));
    TRY(number(out, "loss_scale", r->loss_scale));
    TRY(text_add(out, ", \"skipped\": %s", r->skipped ? "true" : "false"));
    TRY(number(out, "tokens_per_s", r->tokens_per_s));
    TRY(number(out, "mfu", r->mfu));
    TRY(number(out, "wait", r->wait));
    if (r->comm > 0) TRY(number(out, "comm", r->comm));
    if (r->comm > 0) TRY(number(out, "comm_exposed", r->comm_exposed));
    if (r->comm_ep > 0) TRY(number(out, "comm_ep", r->comm_ep));
    if (r->comm_ep > 0) TRY(number(out, "comm_ep_exposed", r->comm_ep_exposed));
    if (r->goodput != NULL) {
        TRY(text_add(out, ", "));
        TRY(obs_goodput_print_json(r->goodput, out));
    }
    if (r->codec_errors != NULL) TRY(print_codec(r, out));
    if (r->load_count > 0) TRY(print_loads(r, out));
    for (int i = 0; i < r->measure_count; i++) {
        TRY(number(out, r->measures[i].name, r->measures[i].value));
    }
    return text_add(out, "}");
}

status obs_metrics_add(obs_metrics *m, const obs_record *r)
{
    arena_reset(m->a);
    text t = {.a = m->a};
    TRY(obs_print_json(r, &t));
    TRY(text_add(&t, "\n"));
    TRY(obs_append_write(&m->file, t.bytes, t.length));
    return m->limit > 0 && m->file.bytes >= m->limit ? rotate(m, r->step) : ST_OK;
}

status obs_metrics_add_event(obs_metrics *m, const text *line)
{
    return obs_append_write(&m->file, line->bytes, line->length);
}

bool obs_metrics_before(const obs_metrics *m, obs_goodput *out, double *time)
{
    if (!m->before.is_there) return false;
    *out = m->before.goodput;
    *time = m->before.time;
    return true;
}

status obs_metrics_close(obs_metrics *m)
{
    if (m == NULL) return ST_OK;
    arena_destroy(m->a);
    return obs_append_close(&m->file);
}

static int digits(int64_t n)
{
    int count = 1;
    for (; n >= 10; n /= 10) count++;
    return count;
}

// "  load 1.42 ent 0.98 drop 0.3% idle 2": of the fullest expert of all layers, in multiples of the
// mean; the rest only where there is something to say.
static void load_print(const obs_record *r, char *out, size_t bytes)
{
    const obs_load all = load_worst(r);
    int at = snprintf(out, bytes, "  load %.2f ent %.2f", all.max, all.entropy);
    if (all.dropped > 0.0) {
        at += snprintf(out + at, bytes - (size_t)at, " drop %.1f%%", 100.0 * all.dropped);
    }
    if (all.idle > 0)
        (void)snprintf(out + at, bytes - (size_t)at, " idle %lld", (long long)all.idle);
}

status obs_print_line(const obs_record *r, int columns, text *out)
{
    // The fields are in order of importance. The time left comes last but always keeps its place.
    enum { FIELDS = 11, FIELD_BYTES = 256 };
    char fields[FIELDS][FIELD_BYTES] = {{0}}, human[32];
    const size_t n = FIELD_BYTES;
    if (r->skipped) (void)snprintf(fields[0], n, "  skipped: %s", r->why != NULL ? r->why : "");
    if (!isnan(r->eta_s)) {
        (void)snprintf(fields[1], n, "  eta %s", text_duration_human(r->eta_s, human));
    }
    (void)snprintf(fields[2], n, "  gnorm %.2f  lr %.1e", r->grad_norm, r->lr);
    (void)snprintf(fields[3], n, "  tok/s %s", text_count_human(r->tokens_per_s, human));
    if (!isnan(r->mfu)) (void)snprintf(fields[4], n, "  mfu %.1f%%", 100.0 * r->mfu);
    if (r->load_count > 0) load_print(r, fields[5], n);
    if (r->loss_scale != 1.0) (void)snprintf(fields[6], n, "  scale %.0f", r->loss_scale);
    (void)snprintf(fields[7], n, "  mem %s", text_bytes_human(r->memory_bytes, human));
    (void)snprintf(fields[8], n, "  wait %.1f%%", 100.0 * r->wait);
    if (r->comm > 0) {
        const double hidden = 1.0 - fmin(1.0, r->comm_exposed / r->comm);
        (void)snprintf(fields[9], n, "  comm %.1f%% (%.0f%% hidden)", 100.0 * r->comm,
                       100.0 * hidden);
    }
    if (r->goodput != NULL && obs_goodput_share(r->goodput) < 0.9995) {
        (void)snprintf(fields[10], n, "  ");
        obs_goodput_print(r->goodput, fields[10] + 2, FIELD_BYTES - 2);
    }
    const int64_t begin = out->length;
    TRY(text_add(out, "step %*lld/%lld  loss %.4f", digits(r->steps) + 2, (long long)r->step,
                 (long long)r->steps, r->loss));
    for (int i = 0; i < r->measure_count; i++) {
        const obs_measure *m = &r->measures[i];
        if (m->on_line) TRY(text_add(out, "  %s %.3f", m->name, m->value));
    }
    int64_t left = columns > 0 ? columns - (out->length - begin) : INT64_MAX;
    int shown = 0;
    for (; shown < FIELDS && (int64_t)strlen(fields[shown]) <= left; shown++) {
        left -= (int64_t)strlen(fields[shown]);
    }
    for (int i = 2; i < shown; i++) TRY(text_add(out, "%s", fields[i]));
    TRY(text_add(out, "%s", shown > 1 ? fields[1] : ""));
    return text_add(out, "%s", shown > 0 ? fields[0] : "");
}

status obs_print_live(const obs_record *r, int columns, text *out)
{
    enum { BAR = 20 };
    char speed[32], eta[32];
    const double share = (double)r->step / (double)max_i64(r->steps, 1);
    text t = {.a = out->a};
    TRY(text_add(&t, " %lld/%lld %.1f%%  loss %.3f  %s tok/s", (long long)r->step,
                 (long long)r->steps, 100.0 * share, r->loss,
                 text_count_human(r->tokens_per_s, speed)));
    if (!isnan(r->eta_s)) TRY(text_add(&t, "  eta %s", text_duration_human(r->eta_s, eta)));
    const int filled = (int)(share * BAR);
    char line[512];
    int64_t at = 0;
    line[at++] = '[';
    for (int i = 0; i < BAR; i++) line[at++] = i < filled ? '#' : '-';
    line[at++] = ']';
    const int64_t n = min_i64(t.length, (int64_t)sizeof(line) - at - 1);
    memcpy(line + at, t.bytes, (size_t)n);
    at = min_i64(at + n, columns > 1 ? columns - 1 : at + n);
    return text_add_bytes(out, line, at);
}
