// `explain`: draws what a configuration would do before a rank is started.
#include "catalog/run.h"
#include "cli/commands.h"
#include "cli/explain/explain.h"

#include <string.h>

typedef struct explain_flags {
    const char *svg, *rank, *lists, *more, *cluster;
    bool equal, json;
} explain_flags;

#define AT(field) (int64_t) offsetof(explain_flags, field)
static const option rows[] = {
    {.key = "svg",
     .kind = OPTION_PATH,
     .offset = AT(svg),
     .help = "also write a picture of the run to this file"},
    {.key = "cluster",
     .kind = OPTION_TEXT,
     .offset = AT(cluster),
     .help = "simulate the run on this cluster: a name such as h100, or a YAML file"},
    {.key = "rank",
     .kind = OPTION_TEXT,
     .offset = AT(rank),
     .help = "show one rank: its layers, tensors and bytes, groups, neighbours and transfers"},
    {.key = "lists",
     .kind = OPTION_PATH,
     .offset = AT(lists),
     .help =
         "also write the ordered actions of each pp rank to this file, in the format of layout.schedule"},
    {.key = "equal",
     .kind = OPTION_BOOL,
     .offset = AT(equal),
     .default_text = "false",
     .help = "draw the pipeline with equal times, as in publications, not by FLOPs"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "for `explain claims`: print one JSON object"},
    {.key = "more",
     .kind = OPTION_PATH,
     .offset = AT(more),
     .help =
         "for `explain claims`: also answer the claims of this file, written like catalog/claims.yaml"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

// Reads "41237" or "41,237".
static status rank_read(const explain *x, const char *word, int64_t *out)
{
    char digits[32];
    size_t n = 0;
    for (const char *p = word; *p != '\0' && n < sizeof(digits) - 1; p++) {
        if (*p != ',') digits[n++] = *p;
    }
    digits[n] = '\0';
    if (text_parse_i64(digits, out) && *out >= 0 && *out < x->ranks) return ST_OK;
    return fail(ST_USAGE, "--rank %s: the layout has ranks 0 to %lld", word,
                (long long)x->ranks - 1);
}

static status print_rank(explain *x, const char *word)
{
    int64_t rank = 0;
    assemble_plans *plans = NULL;
    TRY(rank_read(x, word, &rank));
    TRY(explain_plans(x, x->cli->a, rank, &plans));
    const plan *p = assemble_plan_of(plans, run_config_batch_max(x->r), false);
    x->model = plans->whole;
    TRY(explain_stages(x, p->own_sequences / p->micro_batch));
    return explain_rank_page(x, plans, rank);
}

// The first rank of a stage needs the most bytes of its ranks.
static status bytes_of_stage(explain *x, arena *a, int64_t rank, explain_bytes *out)
{
    assemble_plans *plans = NULL;
    TRY(explain_plans(x, a, rank, &plans));
    *out = explain_bytes_of(plans, rank);
    return ST_OK;
}

static status all(explain *x, const explain_flags *f)
{
    explain_bytes bytes[EXPLAIN_STAGES];
    const explain_price price = f->equal ? PRICE_EQUAL : PRICE_FLOPS;
    assemble_plans *plans = NULL;
    const int64_t stages = x->r->layout.pp, apart = x->ranks / stages;
    const int32_t count = (int32_t)min_i64(stages, EXPLAIN_STAGES);
    TRY(explain_plans(x, x->cli->a, 0, &plans));
    const plan *p = assemble_plan_of(plans, run_config_batch_max(x->r), false);
    x->model = plans->whole;
    TRY(explain_stages(x, p->own_sequences / p->micro_batch));
    bytes[0] = explain_bytes_of(plans, 0);
    for (int32_t i = 1; i < count; i++) { // the first and the last half of the shown stages
        arena *a = NULL;
        const int64_t stage = i < count - count / 2 ? i : stages - count + i;
        TRY(arena_create("explain", 0, &a));
        const status st = bytes_of_stage(x, a, stage * apart, &bytes[i]);
        arena_destroy(a);
        TRY(st);
    }
    TRY(explain_print(x, price, bytes, count));
    if (f->lists != NULL) {
        text lists = {.a = x->cli->a};
        TRY(plan_schedule_print(x->schedule, &x->pipe.shape, &lists));
        TRY(host_write_all(x->cli->h, f->lists, lists.bytes, lists.length));
        cli_print(x->cli, "\nlists     %s\n", f->lists);
    }
    if (f->svg == NULL) return ST_OK;
    text t = {.a = x->cli->a};
    TRY(explain_svg(x, price, bytes, count, &t));
    TRY(host_write_all(x->cli->h, f->svg, t.bytes, t.length));
    cli_print(x->cli, "\npicture   %s\n", f->svg);
    return ST_OK;
}

static status claims(cli_context *cli, const cli_call *call)
{
    const explain_flags *f = call->flags;
    if (f->svg != NULL || f->rank != NULL || f->lists != NULL || f->equal || call->key_count > 0) {
        return fail(ST_USAGE, "explain claims takes --json and --more FILE only");
    }
    return explain_claims(cli, f->more, f->json);
}

static status catalog(cli_context *cli, const cli_call *call)
{
    const explain_flags *f = call->flags;
    if (f->svg != NULL || f->rank != NULL || f->lists != NULL || f->equal || f->json ||
        f->more != NULL || call->key_count > 0) {
        return fail(ST_USAGE, "explain catalog takes no flags and no keys");
    }
    return explain_catalog(cli, call->operand_count > 1 ? call->operands[1] : NULL,
                           call->operand_count > 2 ? call->operands[2] : NULL);
}

// True unless there is a file or a folder of that name.
static bool is_run_of_catalog(cli_context *cli, const char *name)
{
    file_info info;
    if (!catalog_run_exists(name)) return false;
    const status st = cli->h->api->path_info(cli->h, name, &info);
    if (st != ST_OK) error_clear();
    return st == ST_OK && info.kind == FILE_KIND_NONE;
}

static status run(cli_context *cli, const cli_call *call)
{
    const explain_flags *f = call->flags;
    explain *x = NULL;
    if (strcmp(call->operands[0], "catalog") == 0) return catalog(cli, call);
    if (call->operand_count > 1) {
        const bool is_claims = strcmp(call->operands[0], "claims") == 0;
        return fail(ST_USAGE, "explain %s; unexpected %s",
                    is_claims ? "claims takes no name" : "takes one configuration",
                    call->operands[1]);
    }
    if (strcmp(call->operands[0], "claims") == 0) return claims(cli, call);
    if (f->json || f->more != NULL) {
        return fail(ST_USAGE, "--json and --more need `trireme explain claims`");
    }
    if (f->cluster != NULL || is_run_of_catalog(cli, call->operands[0])) {
        if (f->rank != NULL || f->lists != NULL || f->equal) {
            return fail(ST_USAGE,
                        "--rank, --lists and --equal need a configuration without --cluster");
        }
        return explain_cluster(cli, call, f->cluster, f->svg);
    }
    TRY(arena_new(cli->a, 1, &x));
    TRY(explain_open(cli, call, x));
    return f->rank != NULL ? print_rank(x, f->rank) : all(x, f);
}

const cli_command cli_command_explain = {
    .name = "explain",
    .summary = "draw what a configuration would do: pipeline, mesh, bytes of each rank",
    .synopsis =
        "CONFIG|RUN [--svg FILE] [--lists FILE] [--equal] [--rank R] [key.path=value ...] | "
        "CONFIG|PRESET|FOLDER|RUN --cluster NAME|FILE [--svg FILE] [key.path=value ...] | "
        "claims [--json] [--more FILE] | catalog [KIND] [NAME|FILE]",
    .about =
        "Plans the run as `trireme train` would and shows it; starts nothing and writes only the "
        "requested files. The timeline shows a step of one pipeline in virtual time: work takes time "
        "in proportion to its FLOPs (with --equal, all the same), and transfers take none. F forward, I gradient of "
        "the input, W gradients of weights, B both; small letters are a rank's second chunk. "
        "--lists writes the schedule as text, a line per rank of pp: F0.3 is the forward of chunk 0, "
        "micro-batch 3, F0.3+B1.2 a pair. layout.schedule accepts such a file, also with your "
        "changes; `trireme verify` checks whether it works. With --cluster, or for a run of "
        "the catalogue, it simulates the step there, and the picture shows the step in time, the memory, "
        "and the part of the network that each axis uses. `explain claims` computes the figures that "
        "people quote about large runs, each with a verdict (match, only_if, wrong, no_public_basis) and why. "
        "`explain catalog` is `trireme catalog`: it lists the known models, runs, devices, links, "
        "clusters and profiles; with a name, it shows one of "
        "them: peaks dense and sparse, links one way and both, in bits and bytes, prices, failures, and "
        "the source of each figure, or that it is assumed.",
    .examples =
        "  trireme explain demo/config.yaml layout.pp=4 layout.schedule=zb-h1 --svg demo.svg\n"
        "  trireme explain demo/config.yaml layout.dp=2 layout.tp=2 --rank 3\n"
        "  trireme explain llama3.1-70b --cluster h100 layout.tp=8 layout.pp=4 layout.dp=2 --svg 70b.svg\n"
        "  trireme explain claims\n"
        "  trireme explain catalog h100\n",
    .flags = &flags,
    .flags_bytes = sizeof(explain_flags),
    .operand_min = 1,
    .operand_max = 3,
    .takes_keys = true,
    .words = "claims, catalog",
    .run = run,
};
