// `serve`: a model behind OpenAI's API.
#include "cli/commands.h"
#include "cli/infer/answering.h"
#include "cli/infer/device.h"
#include "cli/serve/ranks.h"
#include "cli/train/ranks.h"
#include "cli/train/signals.h"
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>

typedef struct serve_flags {
    const char *address, *key, *key_file, *name, *tokenizer, *adapter, *template_name;
    const char *drift, *drift_record;
    int64_t port, batch, requests, context, cache, threads, drift_window;
    option_list adapters;
    int32_t precision;
    bool strict;
} serve_flags;

#define AT(field) (int64_t) offsetof(serve_flags, field)
static const option rows[] = {
    {.key = "host",
     .kind = OPTION_TEXT,
     .offset = AT(address),
     .default_text = "127.0.0.1",
     .help = "IPv4 address to listen on; 0.0.0.0 is all networks of this machine",
     .also = "address, bind, listen"},
    {.key = "port",
     .kind = OPTION_INT,
     .offset = AT(port),
     .default_text = "8000",
     .max = 65535,
     .help = "port to listen on; 0 is any free one"},
    {.key = "key",
     .kind = OPTION_TEXT,
     .offset = AT(key),
     .default_text = "new",
     .help = "key that clients must send: new makes one and prints it; none asks for none. "
             "Other users of this machine can read a key that is given here; --key-file is safer",
     .also = "api_key, token"},
    {.key = "key-file",
     .kind = OPTION_TEXT,
     .offset = AT(key_file),
     .help = "file whose first line is the key"},
    {.key = "name",
     .kind = OPTION_TEXT,
     .offset = AT(name),
     .help = "name of the model for clients; the default is the operand's last part",
     .also = "served_model_name, model, alias"},
    {.key = "template",
     .kind = OPTION_TEXT,
     .offset = AT(template_name),
     .default_text = "auto",
     .help = "chat template of /v1/chat/completions: auto is that of the run or of the "
             "tokenizer's folder, if it has one; else chatml, llama3, a file, or none",
     .also = "chat_template"},
    {.key = "batch",
     .kind = OPTION_INT,
     .offset = AT(batch),
     .default_text = "8",
     .min = 1,
     .max = 1024,
     .help = "number of texts that are continued at once; fewer where memory is short",
     .also = "parallel, slots"},
    {.key = "requests",
     .kind = OPTION_INT,
     .offset = AT(requests),
     .default_text = "256",
     .min = 1,
     .max = 1 << 20,
     .help = "number of requests at once, waiting ones included; further ones get code 503",
     .also = "queue"},
    {.key = "context",
     .kind = OPTION_INT,
     .offset = AT(context),
     .default_text = "0",
     .max = 1 << 24,
     .help = "longest text in tokens, prompt and answer together; 0 is the model's context, 4096 "
             "at most",
     .also = "ctx_size, max_model_len"},
    CLI_CACHE_ROW(serve_flags, "--context"),
    {.key = "drift",
     .kind = OPTION_TEXT,
     .offset = AT(drift),
     .help = "file of --drift-record that answers are compared with: lengths, how likely the "
             "model finds its answers, refusals. A window that differs is a warning, and "
             "/metrics has the figures",
     .also = "reference, baseline"},
    {.key = "drift-window",
     .kind = OPTION_INT,
     .offset = AT(drift_window),
     .default_text = "200",
     .min = 20,
     .max = 1 << 24,
     .help = "number of answers that are compared with the reference at once"},
    {.key = "drift-record",
     .kind = OPTION_TEXT,
     .offset = AT(drift_record),
     .help = "file to write at the end: what this server saw, as a reference for --drift"},
    {.key = "adapters",
     .kind = OPTION_LIST,
     .offset = AT(adapters),
     .help = "NAME=DIR: a folder of PEFT that clients choose by NAME as their model; may be given "
             "several times",
     .also = "lora-modules"},
    CLI_MODEL_ROWS(serve_flags, "weights, cache and activations"),
    {.key = "strict",
     .kind = OPTION_BOOL,
     .offset = AT(strict),
     .default_text = "false",
     .help = "strict mode: a request gives the same bits alone and with others, with any number "
             "of threads; on for a run with determinism: strict"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

typedef struct serving {
    cli_context *cli;
    const serve_flags *f;
    cli_model model;
    data_tokenizer *tokenizer;
    data_chat *chat;
    const char **names, **folders; // of adapters
    run_config *layout;
    cli_ranks *ranks; // that share the model; NULL: this process alone
    infer *g;
    serve *server;
    const char *key; // NULL: none
    bool key_is_new;
} serving;

// ---- the key ------------------------------------------------------------------------------------

static status key_make(serving *v)
{
    unsigned char random[16];
    char *key = NULL;
    TRY(v->cli->h->api->random_fill(v->cli->h, random, (int64_t)sizeof(random)));
    TRY(arena_new(v->cli->a, 2 * (int64_t)sizeof(random) + 1, &key));
    for (size_t i = 0; i < sizeof(random); i++) (void)snprintf(key + 2 * i, 3, "%02x", random[i]);
    v->key = key;
    v->key_is_new = true;
    return ST_OK;
}

static status key_read(serving *v)
{
    enum { KEY_BYTES_MAX = 4096 };
    char *key = NULL;
    int64_t count = 0;
    TRY(host_read_text(v->cli->h, v->cli->a, v->f->key_file, KEY_BYTES_MAX, &key, &count));
    key[strcspn(key, "\r\n")] = '\0';
    v->key = key;
    if (*key != '\0') return ST_OK;
    return fail(ST_USAGE, "%s: the first line is empty, so it is no key", v->f->key_file);
}

static status key_find(serving *v)
{
    if (v->f->key_file != NULL && strcmp(v->f->key, "new") != 0) {
        return fail(ST_USAGE, "--key and --key-file exclude each other");
    }
    if (v->f->key_file != NULL) return key_read(v);
    if (strcmp(v->f->key, "new") == 0) return key_make(v);
    v->key = strcmp(v->f->key, "none") == 0 ? NULL : v->f->key;
    if (v->key != NULL || strncmp(v->f->address, "127.", 4) == 0) return ST_OK;
    cli_warn(v->cli, "anyone who can reach %s can use the model: --key none", v->f->address);
    return ST_OK;
}

// ---- the model ----------------------------------------------------------------------------------

// A template by name is wanted; that of the tokenizer's folder may be missing.
static status chat_find(serving *v)
{
    const char *name = v->f->template_name;
    if (strcmp(name, "none") == 0) return ST_OK;
    TRY(cli_chat_open(v->cli, &v->model, v->f->tokenizer, name, v->tokenizer, &v->chat));
    if (strcmp(name, "auto") == 0 && !data_chat_has_template(v->chat)) {
        data_chat_close(v->chat);
        v->chat = NULL;
    }
    return ST_OK;
}

// Splits NAME=DIR. A name is unique, and not that of the model.
static status adapters_read(serving *v, const char *model)
{
    const option_list *list = &v->f->adapters;
    if (list->count > 0 && v->f->adapter != NULL) {
        return fail(ST_USAGE, "--adapter and --adapters exclude each other");
    }
    TRY(arena_new(v->cli->a, list->count + 1, &v->names));
    TRY(arena_new(v->cli->a, list->count + 1, &v->folders));
    for (int64_t i = 0; i < list->count; i++) {
        const char *item = list->items[i], *equals = strchr(item, '=');
        char *name = NULL;
        if (equals == NULL || equals == item || equals[1] == '\0') {
            return fail(ST_USAGE, "--adapters %s: expected NAME=DIR", item);
        }
        TRY(arena_format(v->cli->a, &name, "%.*s", (int)(equals - item), item));
        bool taken = strcmp(name, model) == 0;
        for (int64_t k = 0; k < i && !taken; k++) taken = strcmp(v->names[k], name) == 0;
        if (taken) return fail(ST_USAGE, "--adapters %s: the name %s is taken", item, name);
        v->names[i] = name;
        v->folders[i] = equals + 1;
    }
    return ST_OK;
}

static const char *name_of(const serving *v, const char *operand)
{
    if (v->f->name != NULL) return v->f->name;
    const char *end = operand + strlen(operand);
    while (end > operand && end[-1] == '/') end--;
    const char *begin = end;
    while (begin > operand && begin[-1] != '/') begin--;
    char *name = NULL;
    if (arena_format(v->cli->a, &name, "%.*s", (int)(end - begin), begin) == ST_OK && *name != 0) {
        return name;
    }
    return "model";
}

// Each rank opens it with equal options.
static status model_open(serving *v, const char *operand, int64_t *out)
{
    static const int64_t context_most = 4096;
    const int64_t context =
        v->f->context > 0 ? v->f->context : min_i64(v->model.spec.context, context_most);
    if (context > v->model.spec.context) {
        return fail(ST_CONFIG_RANGE, "--context %lld: the model's context is %lld tokens",
                    (long long)context, (long long)v->model.spec.context);
    }
    TRY(adapters_read(v, name_of(v, operand)));
    infer_options options = {.threads = (int)v->f->threads,
                             .compute = cli_model_type(&v->model, v->f->precision),
                             .slots = v->f->batch,
                             .context = context,
                             .cache = v->f->cache,
                             .logits = true,
                             .strict = v->f->strict,
                             .adapter = v->f->adapter,
                             .adapters = v->folders,
                             .adapter_count = v->f->adapters.count,
                             .layout = v->layout,
                             .ranks = v->ranks != NULL ? cli_ranks_comm(v->ranks) : NULL};
    cli_device_set(v->layout, v->model.strict, &options);
    *out = context;
    return cli_infer_open(v->cli, &v->model, &options, &v->g);
}

// ---- output -------------------------------------------------------------------------------------

static void tell_begin(const serving *v, const serve_model *m)
{
    cli_context *cli = v->cli;
    cli_print(cli, "model    %s: %lld texts at once, %lld tokens each\n", m->name,
              (long long)infer_slots(v->g), (long long)m->context);
    const infer_cache cache = infer_cache_counted(v->g);
    if (cache.tokens > 0) {
        cli_print(cli, "cache    %lld tokens for all texts together, in pages\n",
                  (long long)cache.tokens);
    }
    for (int64_t i = 0; i < m->adapter_count; i++) {
        cli_print(cli, "adapter  %s: %s\n", m->adapters[i], v->folders[i]);
    }
    cli_print(cli, "chat     %s\n",
              v->chat != NULL ? data_chat_template(v->chat)
                              : "no template, so /v1/completions only (--template)");
    if (v->key == NULL) {
        cli_print(cli, "key      none: every program of this machine can use the model\n");
    } else if (v->key_is_new) {
        cli_print(cli, "key      %s (new; --key-file keeps one)\n", v->key);
    } else {
        cli_print(cli, "key      as given\n");
    }
    cli_print(cli, "listens  http://%s:%lld/v1   (Ctrl-C ends)\n", v->f->address,
              (long long)serve_port(v->server));
    cli_push(cli);
}

// ---- drift --------------------------------------------------------------------------------------

static status reference_read(const serving *v, const drift_window **out)
{
    enum { BYTES_MAX = 1 << 16 };
    char *bytes = NULL;
    int64_t count = 0;
    drift_window *w = NULL;
    *out = NULL;
    if (v->f->drift == NULL) return ST_OK;
    TRY(host_read_all(v->cli->h, v->cli->a, v->f->drift, BYTES_MAX, &bytes, &count));
    TRY(arena_new(v->cli->a, 1, &w));
    TRY(drift_read(bytes, count, v->f->drift, w));
    *out = w;
    return ST_OK;
}

static void tell_drift(void *context, drift_of of, double index)
{
    static const char *const what[DRIFT_COUNT] = {
        [DRIFT_PROMPT_TOKENS] = "the length of prompts",
        [DRIFT_ANSWER_TOKENS] = "the length of answers",
        [DRIFT_NATS] = "how likely the model finds its answers",
        [DRIFT_REFUSALS] = "the share of answers that refuse",
    };
    const serving *v = context;
    cli_warn(v->cli, "the last %lld answers differ from %s in %s: stability index %.2f, above %.2f",
             (long long)v->f->drift_window, v->f->drift, what[of], index, drift_alert);
    cli_push(v->cli);
}

static status record_write(const serving *v, const drift_window *seen)
{
    text t = {.a = v->cli->a};
    if (v->f->drift_record == NULL) return ST_OK;
    if (seen->answers == 0) {
        cli_warn(v->cli, "no answer was given, so %s is not written", v->f->drift_record);
        return ST_OK;
    }
    TRY(drift_text(seen, &t));
    return host_write_all(v->cli->h, v->f->drift_record, t.bytes, t.length);
}

static bool stop_asked(void *context)
{
    (void)context;
    return cli_signals_asked();
}

static status serve_model_run(serving *v, const char *operand)
{
    cli_ends ends;
    int64_t context = 0;
    TRY(key_find(v));
    TRY(cli_tokenizer_open(v->cli, &v->model, v->f->tokenizer, &v->tokenizer));
    TRY(chat_find(v));
    TRY(cli_ends_find(v->cli, &v->model, v->tokenizer, v->chat, &ends));
    TRY(model_open(v, operand, &context));
    serve_model m = {.g = v->g,
                     .tokenizer = v->tokenizer,
                     .chat = v->chat,
                     .end_count = ends.count,
                     .context = context,
                     .name = name_of(v, operand),
                     .adapters = v->names,
                     .adapter_count = v->f->adapters.count};
    memcpy(m.ends, ends.ids, sizeof(ends.ids));
    serve_options options = {.address = v->f->address,
                             .port = v->f->port,
                             .key = v->key,
                             .requests = v->f->requests,
                             .window = v->f->drift_window,
                             .watches = v->f->drift_record != NULL};
    const serve_watcher watcher = {.context = v, .stop = stop_asked, .drifted = tell_drift};
    TRY(reference_read(v, &options.reference));
    TRY(serve_open(v->cli->h, v->cli->a, &m, &options, &v->server));
    if (v->ranks == NULL) cli_signals_begin_quiet();
    tell_begin(v, &m);
    status st = serve_run(v->server, &watcher);
    if (st == ST_OK) st = infer_dismiss(v->g);
    const serve_counts counts = serve_counted(v->server);
    if (st == ST_OK) {
        cli_print(v->cli, "answered %lld requests (%lld refused), %lld tokens read, %lld written\n",
                  (long long)counts.requests, (long long)counts.refused,
                  (long long)counts.prompt_tokens, (long long)counts.generated);
        st = record_write(v, serve_seen(v->server));
    }
    serve_close(v->server);
    cli_signals_end();
    return st;
}

// ---- ranks --------------------------------------------------------------------------------------

static status follow(serving *v, const char *operand)
{
    int64_t context = 0;
    TRY(model_open(v, operand, &context));
    return infer_follow(v->g);
}

static status serve_as(serving *v, const char *operand, int rank)
{
    const status st = rank == 0 ? serve_model_run(v, operand) : follow(v, operand);
    infer_close(v->g);
    data_chat_close(v->chat);
    data_tokenizer_close(v->tokenizer);
    return st;
}

static status rank_run(serving *v, const char *operand, const launch_place *place)
{
    cli_signals_begin_quiet();
    status st = cli_ranks_join(v->cli, NULL, NULL, place, &v->ranks);
    if (st == ST_OK) st = serve_as(v, operand, place->rank);
    cli_ranks_leave(v->ranks, st);
    cli_signals_end();
    return st;
}

static status run(cli_context *cli, const cli_call *call)
{
    serving v = {.cli = cli, .f = call->flags};
    const char *operand = call->operands[0];
    launch_place place;
    TRY(cli_model_find(cli, operand, &v.model));
    TRY(cli_serve_layout(cli, call, &v.model, v.f->strict, &v.layout));
    TRY(cli_device_show(cli, v.layout));
    const int64_t ranks = v.layout->layout.tp;
    if (ranks == 1) return serve_as(&v, operand, 0);
    TRY(cli_ranks_place(&place));
    if (place.ranks == 1) return cli_serve_start(cli, ranks);
    if (place.ranks == ranks) return rank_run(&v, operand, &place);
    return fail(ST_CONFIG_CONFLICT, "layout.tp = %lld is of as many ranks, and %d were started",
                (long long)ranks, place.ranks);
}

const cli_command cli_command_serve = {
    .name = "serve",
    .summary = "answer requests over HTTP, as OpenAI's API does",
    .synopsis = "RUN|CHECKPOINT|FOLDER [--host ADDRESS] [--port N] [--key KEY | --key-file FILE] "
                "[--template T] [--batch N] [--adapters NAME=DIR] [--drift FILE] "
                "[--drift-record FILE] [layout.tp=N] [kernels.device=cuda]",
    .about =
        "For a run, the command takes its newest checkpoint. It answers /v1/models, "
        "/v1/completions and /v1/chat/completions, whole or as a stream, /health, and /metrics "
        "for Prometheus. Clients send the key as Authorization: Bearer KEY. Several texts are "
        "continued at once, and a new request begins as soon as one of them ends. A member of a "
        "request that is not supported is refused by name. Adapters that --adapters names are "
        "models of their own; they take turns over one copy of the weights. layout.tp=N cuts the "
        "model over N processes, which the command starts; it is the only key of layout that it "
        "takes. kernels.device=cuda uses NVIDIA GPUs, where this has not run yet. "
        "There is no TLS: put a proxy before it "
        "where others can read the network. Ctrl-C or SIGTERM ends it; requests that are not "
        "finished get code 503.",
    .examples =
        "  trireme serve demo/run\n"
        "  trireme serve sft/run --template auto --key-file ~/key --port 8080\n"
        "  curl localhost:8000/v1/completions -H 'Content-Type: application/json' \\\n"
        "       -H \"Authorization: Bearer $KEY\" -d '{\"model\": \"run\", \"prompt\": \"Once\"}'\n",
    .flags = &flags,
    .flags_bytes = sizeof(serve_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
