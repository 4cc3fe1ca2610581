// `inspect RUN --experts`: the load of experts over a run, from its metrics.jsonl.
//
// A line is a layer with experts, a column some steps: the tokens of the fullest expert, as a
// multiple of the mean, in steps from even (.) to all tokens on one expert (@).
#include "base/format/json.h"
#include "cli/inspect/inspect.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 60, LAYERS_MOST = 1 << 14 };

typedef struct cell {
    double max, entropy; // sums over steps
    int64_t idle;        // the most of any step
} cell;

typedef struct loads {
    arena *a;
    cell *cells; // [step][layer]
    int64_t *steps;
    int64_t count, cell_capacity, step_capacity, layers;
    double dropped, aux;            // the largest share; of the last step
    int64_t moved, moves, moved_at; // experts, and times that some moved; the last step of these
} loads;

static double at(const json *list, int64_t i, double otherwise)
{
    return i < json_count(list) ? json_real(json_at(list, i), otherwise) : otherwise;
}

// Takes the record of a step. Lines of events, and those of models without experts, have no load.
static status record_take(loads *l, const json *record)
{
    const json *max = json_get(record, "moe_layers_load_max");
    const json *entropy = json_get(record, "moe_layers_entropy");
    const json *idle = json_get(record, "moe_layers_idle");
    const int64_t layers = json_count(max);
    if (strcmp(json_text(json_get(record, "event"), ""), "rebalance") == 0) {
        l->moved += json_int(json_get(record, "experts"), 0);
        l->moved_at = json_int(json_get(record, "step"), 0);
        l->moves++;
    }
    if (json_kind_of(max) != JSON_LIST || layers < 1 || layers > LAYERS_MOST) return ST_OK;
    if (l->layers == 0) l->layers = layers;
    if (layers != l->layers) return ST_OK; // of another model
    TRY(arena_grow(l->a, (void **)&l->steps, &l->step_capacity, l->count + 1,
                   (int64_t)sizeof(*l->steps)));
    TRY(arena_grow(l->a, (void **)&l->cells, &l->cell_capacity, (l->count + 1) * layers,
                   (int64_t)sizeof(*l->cells)));
    for (int64_t i = 0; i < layers; i++) {
        l->cells[l->count * layers + i] = (cell){.max = at(max, i, 1.0),
                                                 .entropy = at(entropy, i, 1.0),
                                                 .idle = (int64_t)fmax(at(idle, i, 0.0), 0.0)};
    }
    l->steps[l->count++] = json_int(json_get(record, "step"), 0);
    l->dropped = fmax(l->dropped, json_real(json_get(record, "moe_dropped"), 0.0));
    l->aux = json_real(json_get(record, "moe_aux_loss"), (double)NAN);
    return ST_OK;
}

static status lines_take(loads *l, const char *path, const char *bytes, int64_t count)
{
    for (int64_t begin = 0; begin < count;) {
        const char *line = bytes + begin, *end = memchr(line, '\n', (size_t)(count - begin));
        json *record = NULL;
        if (end == NULL) return ST_OK; // a run is writing it
        TRY(json_parse(line, end - line, path, &record));
        const status st = record_take(l, record);
        json_free(record);
        TRY(st);
        begin = end + 1 - bytes;
    }
    return ST_OK;
}

static status loads_read(cli_context *cli, const char *path, loads *l)
{
    file *f = NULL;
    const void *bytes = NULL;
    int64_t count = 0;
    TRY(cli->h->api->file_open(cli->h, path, FILE_READ, &f));
    status st = cli->h->api->file_map(f, &bytes, &count);
    if (st == ST_OK) st = lines_take(l, path, bytes, count);
    (void)cli->h->api->file_close(f); // the file was only read
    return st;
}

// Returns the mean of a layer over steps [begin, end).
static cell mean_of(const loads *l, int64_t layer, int64_t begin, int64_t end)
{
    cell sum = {0};
    for (int64_t i = begin; i < end; i++) {
        const cell *c = &l->cells[i * l->layers + layer];
        sum.max += c->max / (double)(end - begin);
        sum.entropy += c->entropy / (double)(end - begin);
        sum.idle = max_i64(sum.idle, c->idle);
    }
    return sum;
}

static char mark_of(double load)
{
    static const struct {
        double below;
        char mark;
    } marks[] = {{1.25, '.'}, {1.5, '-'}, {2.0, '='}, {4.0, '#'}};
    for (int64_t i = 0; i < COUNT_OF(marks); i++) {
        if (load < marks[i].below) return marks[i].mark;
    }
    return '@';
}

static void layer_draw(cli_context *cli, const loads *l, int64_t layer)
{
    const int64_t columns = min_i64(COLUMNS, l->count);
    char line[COLUMNS + 1] = "";
    for (int64_t i = 0; i < columns; i++) {
        const cell c = mean_of(l, layer, l->count * i / columns, l->count * (i + 1) / columns);
        line[i] = mark_of(c.max);
    }
    const int64_t last = max_i64(l->count - max_i64(l->count / columns, 1), 0);
    const cell c = mean_of(l, layer, last, l->count);
    cli_print(cli, "%5lld  %-*s %5.2f %4.2f", (long long)layer, (int)columns, line, c.max,
              c.entropy);
    if (c.idle > 0) cli_print(cli, " %3lld", (long long)c.idle);
    cli_print(cli, "\n");
}

static void draw(cli_context *cli, const loads *l)
{
    const int64_t columns = min_i64(COLUMNS, l->count);
    cli_print(cli, "tokens of the fullest expert, as a multiple of the mean\n");
    cli_print(cli, "  . below 1.25   - 1.5   = 2   # 4   @ above; at the end of a line: the last\n"
                   "  column's load, entropy (1 is even), and experts without a token\n\n");
    cli_print(cli, "layer  %-*s  load entr idle\n", (int)columns, "");
    for (int64_t i = 0; i < l->layers; i++) layer_draw(cli, l, i);
    cli_print(cli, " step  %-*lld%*lld\n", (int)(columns / 2), (long long)l->steps[0],
              (int)(columns - columns / 2), (long long)l->steps[l->count - 1]);
    if (l->dropped > 0.0)
        cli_print(cli, "dropped    up to %.2f%% of choices\n", 100.0 * l->dropped);
    if (l->moves > 0) {
        cli_print(cli, "moved      %lld experts between ranks, at %lld steps, the last %lld\n",
                  (long long)l->moved, (long long)l->moves, (long long)l->moved_at);
    }
    if (!isnan(l->aux)) cli_print(cli, "aux loss   %.4g in the last step\n", l->aux);
}

static status print_json(cli_context *cli, const loads *l)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "{\"steps\": ["));
    for (int64_t i = 0; i < l->count; i++) {
        TRY(text_add(&t, i == 0 ? "%lld" : ", %lld", (long long)l->steps[i]));
    }
    TRY(text_add(&t, "], \"load_max\": ["));
    for (int64_t k = 0; k < l->layers; k++) {
        TRY(text_add(&t, k == 0 ? "[" : ", ["));
        for (int64_t i = 0; i < l->count; i++) {
            TRY(text_add(&t, i == 0 ? "%.4g" : ", %.4g", l->cells[i * l->layers + k].max));
        }
        TRY(text_add(&t, "]"));
    }
    TRY(text_add(&t, "]}\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

status inspect_experts(cli_context *cli, const char *run, bool is_json)
{
    char *path = NULL;
    loads l = {.a = cli->a, .aux = (double)NAN};
    TRY(path_join(cli->a, run, "metrics.jsonl", &path));
    TRY(loads_read(cli, path, &l));
    if (is_json) return print_json(cli, &l);
    if (l.count == 0) {
        cli_print(cli,
                  "%s has no load of experts: its model has none, or it has finished no step\n",
                  path);
        return ST_OK;
    }
    draw(cli, &l);
    return ST_OK;
}
