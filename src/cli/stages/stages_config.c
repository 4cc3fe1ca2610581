// The file of a chain. The user names its stages, so the option table is made from the names.
#include "cli/stages/stages.h"

#include <string.h>

static const char kinds[] =
    "auto, data, train, adapt, pretrain, sft, dpo, reward, grpo, eval, gate, export";
static const char *const kind_names[] = {"auto", "data",   "train", "adapt", "pretrain", "sft",
                                         "dpo",  "reward", "grpo",  "eval",  "gate",     "export"};

#define AT(field) (int64_t) offsetof(stages, field)
static const option own_rows[] = {
    {.key = "stages.dir",
     .kind = OPTION_PATH,
     .offset = AT(dir),
     .default_text = "stages",
     .help = "folder of all that the stages make"},
    {.key = "stages.budget",
     .kind = OPTION_TEXT,
     .offset = AT(budget),
     .help = "time or money after which the chain stops, over all calls: 2h or $50"},
    {.key = "stages.price",
     .kind = OPTION_REAL,
     .offset = AT(price),
     .default_text = "0",
     .max = 1e9,
     .help = "price of this machine in dollars an hour, for a budget of money"},
};

#define OF(field) (int64_t) offsetof(stage, field)
static const option stage_rows[] = {
    {.key = "kind",
     .kind = OPTION_CHOICE,
     .offset = OF(kind),
     .default_text = "auto",
     .choices = kinds,
     .help = "the command; auto is the stage's name"},
    {.key = "config", .kind = OPTION_PATH, .offset = OF(config), .help = "configuration"},
    {.key = "keys",
     .kind = OPTION_LIST,
     .offset = OF(keys),
     .help = "keys of the configuration, key=value; {NAME} is what stage NAME made"},
    {.key = "flags",
     .kind = OPTION_LIST,
     .offset = OF(flags),
     .help = "further words of the command; {NAME} is what stage NAME made"},
    {.key = "from",
     .kind = OPTION_TEXT,
     .offset = OF(from),
     .help = "stage whose weights the training begins with"},
    {.key = "data",
     .kind = OPTION_TEXT,
     .offset = OF(data),
     .help = "stage whose corpus is the training data"},
    {.key = "of",
     .kind = OPTION_TEXT,
     .offset = OF(of),
     .help = "stage whose model is measured, judged or exported"},
    {.key = "tasks", .kind = OPTION_PATHS, .offset = OF(tasks), .help = "task files of eval"},
    {.key = "policy", .kind = OPTION_PATH, .offset = OF(policy), .help = "policy of gate"},
    {.key = "gate",
     .kind = OPTION_TEXT,
     .offset = OF(gate),
     .help = "stage whose record export asks for"},
};

const char *stage_kind_name(int32_t kind)
{
    return kind_names[kind];
}

bool stage_is_training(const stage *s)
{
    return s->kind >= STAGE_TRAIN && s->kind <= STAGE_GRPO;
}

stage *stages_find(stages *v, const char *name, int64_t before)
{
    for (int64_t i = 0; i < before && name != NULL; i++) {
        if (strcmp(v->list[i].name, name) == 0) return &v->list[i];
    }
    return NULL;
}

static status rows_make(arena *a, const option_list *names, option_table *out)
{
    option *rows = NULL;
    int64_t n = 0;
    TRY(arena_new(a, COUNT_OF(own_rows) + names->count * COUNT_OF(stage_rows), &rows));
    for (int64_t i = 0; i < COUNT_OF(own_rows); i++) rows[n++] = own_rows[i];
    for (int64_t i = 0; i < names->count; i++) {
        for (int64_t k = 0; k < COUNT_OF(stage_rows); k++) {
            char *key = NULL;
            TRY(arena_format(a, &key, "stage.%s.%s", names->items[i], stage_rows[k].key));
            rows[n] = stage_rows[k];
            rows[n].key = key;
            rows[n++].offset += AT(list) + i * (int64_t)sizeof(stage);
        }
    }
    for (int64_t i = 0; i < n; i++) rows[i].unit = rows[i].unit != NULL ? rows[i].unit : "";
    *out = (option_table){.title = "Keys of a chain", .rows = rows, .count = n};
    return ST_OK;
}

static status names_check(const char *path, const option_list *names)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (names->count == 0) {
        return fail(ST_CONFIG_KEY,
                    "%s: no stages; write stage: {NAME: {kind: train, config: FILE}}", path);
    }
    if (names->count > STAGES_MAX) {
        return fail(ST_CONFIG_RANGE, "%s: %lld stages, at most %d expected", path,
                    (long long)names->count, (int)STAGES_MAX);
    }
    for (int64_t i = 0; i < names->count; i++) {
        const size_t n = strlen(names->items[i]);
        if (n > 0 && n <= STAGE_NAME_BYTES_MAX && strspn(names->items[i], allowed) == n) continue;
        return fail(ST_CONFIG_RANGE,
                    "%s: the stage's name \"%.80s\" begins names of folders: 1 to %d letters, "
                    "digits, '-' or '_' expected",
                    path, names->items[i], (int)STAGE_NAME_BYTES_MAX);
    }
    return ST_OK;
}

// ---- rules --------------------------------------------------------------------------------------

static status reference_check(stages *v, int64_t i, const char *key, const char *name)
{
    if (name == NULL || stages_find(v, name, i) != NULL) return ST_OK;
    return fail(ST_CONFIG, "%s: stage.%s.%s: there is no stage \"%s\" before it", v->file,
                v->list[i].name, key, name);
}

static status field_check(const stages *v, const stage *s, const char *key, bool is_given, bool may,
                          bool must)
{
    if (is_given && !may) {
        return fail(ST_CONFIG_CONFLICT, "%s: stage.%s.%s has no effect in a stage of kind %s",
                    v->file, s->name, key, stage_kind_name(s->kind));
    }
    if (is_given || !must) return ST_OK;
    return fail(ST_CONFIG_KEY, "%s: stage.%s.%s is not given, which a stage of kind %s needs",
                v->file, s->name, key, stage_kind_name(s->kind));
}

static status stage_check(stages *v, int64_t i)
{
    stage *s = &v->list[i];
    for (int32_t k = STAGE_DATA; k <= STAGE_EXPORT && s->kind == STAGE_AUTO; k++) {
        if (strcmp(s->name, kind_names[k]) == 0) s->kind = k;
    }
    if (s->kind == STAGE_AUTO) {
        return fail(ST_CONFIG_KEY, "%s: stage.%s.kind is not given: one of %s", v->file, s->name,
                    kinds + strlen("auto, "));
    }
    const bool trains = stage_is_training(s), builds = s->kind == STAGE_DATA;
    const bool measures = !trains && !builds;
    TRY(field_check(v, s, "config", s->config != NULL, trains || builds, trains || builds));
    TRY(field_check(v, s, "keys", s->keys.count > 0, trains || builds, false));
    TRY(field_check(v, s, "from", s->from != NULL, trains, false));
    TRY(field_check(v, s, "data", s->data != NULL, trains, false));
    TRY(field_check(v, s, "of", s->of != NULL, measures, measures));
    TRY(field_check(v, s, "tasks", s->tasks.count > 0, s->kind == STAGE_EVAL,
                    s->kind == STAGE_EVAL));
    TRY(field_check(v, s, "policy", s->policy != NULL, s->kind == STAGE_GATE,
                    s->kind == STAGE_GATE));
    TRY(field_check(v, s, "gate", s->gate != NULL, s->kind == STAGE_EXPORT, false));
    TRY(reference_check(v, i, "from", s->from));
    TRY(reference_check(v, i, "data", s->data));
    TRY(reference_check(v, i, "of", s->of));
    return reference_check(v, i, "gate", s->gate);
}

// "2h", "$50".
static status budget_read(stages *v)
{
    struct {
        int64_t ns;
    } time = {0};
    static const option row = {
        .key = "stages.budget", .kind = OPTION_TIME, .offset = 0, .unit = "", .help = ""};
    double dollars = 0.0;
    if (v->budget == NULL) return ST_OK;
    if (v->budget[0] == '$') {
        if (!text_parse_f64(v->budget + 1, &dollars) || dollars <= 0.0) {
            return fail(ST_CONFIG_TYPE, "%s: stages.budget: expected 2h or $50, got \"%.80s\"",
                        v->file, v->budget);
        }
        if (v->price <= 0.0) {
            return fail(ST_CONFIG_CONFLICT,
                        "%s: stages.budget = %s needs stages.price, the dollars of an hour",
                        v->file, v->budget);
        }
        v->budget_s = dollars / v->price * 3600.0;
        return ST_OK;
    }
    TRY(option_set(&row, v->cli->a, &time, v->budget, v->file, NULL));
    v->budget_s = (double)time.ns / 1e9;
    return ST_OK;
}

status stages_load(cli_context *cli, const char *path, stages *out)
{
    option_list names = {0};
    option_table table;
    config *c = NULL;
    char *home = NULL;
    file_info info;
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind == FILE_KIND_FOLDER) {
        return fail(ST_USAGE, "%s is a folder; give a file that names stages", path);
    }
    TRY(config_names(cli->h, cli->a, path, "stage", NULL, 0, &names));
    if (names.count > 0) TRY(names_check(path, &names));
    TRY(rows_make(cli->a, &names, &table));
    TRY(config_load(cli->h, cli->a, &table, path, NULL, 0, out, &c));
    TRY(names_check(path, &names));
    const int length = (int)(path_base_name(path) - path);
    TRY(arena_format(cli->a, &home, "%.*s", length > 0 ? length : 1, length > 0 ? path : "."));
    out->cli = cli;
    out->file = path;
    out->home = home;
    out->count = names.count;
    for (int64_t i = 0; i < names.count; i++) out->list[i].name = names.items[i];
    for (int64_t i = 0; i < names.count; i++) TRY(stage_check(out, i));
    return budget_read(out);
}
