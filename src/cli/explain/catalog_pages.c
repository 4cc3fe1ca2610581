// Pages of the catalogue with figures that are easily confused side by side: dense and sparse, one
// way and both, bits and bytes, sold and usable.
#include "cli/explain/catalog_pages.h"
#include "catalog/catalog.h"
#include "catalog/files.h"
#include "catalog/run.h"
#include "cli/explain/explain.h"
#include "cli/wrap.h"
#include "cost/cost.h"
#include "model/preset.h"

#include <string.h>

static const char *const math_names[] = {"fp64", "fp32", "tf32", "bf16",
                                         "fp16", "fp8",  "int8", "fp4"};
_Static_assert(COUNT_OF(math_names) == MATH_COUNT, "a name for each type");
static const char *const cause_names[] = {"device",  "device memory", "host",     "network",
                                          "storage", "software",      "facility", "other"};
_Static_assert(COUNT_OF(cause_names) == CAUSE_COUNT, "a name for each cause");

// Adds `head`, padded to `width`, and text next to it over as many lines as it needs. Blanks of the
// head are replaced until the lines are made, so that the line breaking ignores them.
status catalog_column_add(cli_context *cli, text *t, const char *head, int width,
                          const char *content)
{
    enum { OTHER_BLANK = 0x1f };
    char *line = NULL;
    const int64_t begin = t->length;
    TRY(arena_format(cli->a, &line, "%-*s%s", width, head, content));
    for (int i = 0; i < width; i++) {
        if (line[i] == ' ') line[i] = OTHER_BLANK;
    }
    TRY(wrap_sentences(t, line, width, cli->columns));
    for (int64_t i = begin; i < t->length; i++) {
        if (t->bytes[i] == OTHER_BLANK) t->bytes[i] = ' ';
    }
    return text_add(t, "\n");
}

static status line_add(cli_context *cli, text *t, const char *head, const char *content)
{
    return catalog_column_add(cli, t, head, 10, content);
}

// ---- one entry ----------------------------------------------------------------------------------

static status peaks_add(text *t, const cluster_device *d)
{
    TRY(text_add(t, "peak      TFLOP/s     dense    with 2:4 sparsity\n"));
    for (int i = 0; i < MATH_COUNT; i++) {
        if (d->peak_flops[i] <= 0.0) continue;
        TRY(text_add(t, "            %-6s%9.1f", math_names[i], d->peak_flops[i] / 1e12));
        if (d->sparse_flops[i] > 0.0) TRY(text_add(t, "%16.1f", d->sparse_flops[i] / 1e12));
        TRY(text_add(t, "\n"));
    }
    return ST_OK;
}

static status device_add(cli_context *cli, text *t, const cluster_device *d)
{
    char lanes[32], matrix[32];
    TRY(line_add(cli, t, "device", d->about));
    TRY(peaks_add(t, d));
    TRY(text_add(t, "memory    %.6g GB as sold, %.4g GiB (%.4g GB) for programs, %.6g GB/s\n",
                 d->memory_bytes / 1e9, d->usable_bytes / 1073741824.0, d->usable_bytes / 1e9,
                 d->memory_bytes_s / 1e9));
    if (d->units > 0 && d->lanes_per_unit > 0) {
        TRY(text_add(t, "units     %d with %d lanes each: %s; matrix units: %s; dies: %d\n",
                     d->units, d->lanes_per_unit,
                     text_grouped((int64_t)d->units * d->lanes_per_unit, lanes),
                     text_grouped((int64_t)d->units * d->matrix_units_per_unit, matrix), d->dies));
    }
    if (d->sold_watts > 0.0)
        return text_add(t, "power     limited to %.6g W of %.6g\n", d->watts, d->sold_watts);
    return text_add(t, "power     %.6g W\n", d->watts);
}

static status links_add(text *t, const cluster *c)
{
    char count[32];
    TRY(text_add(t, "links     of one device          one way  both ways  one way   first  taper\n"
                    "            devices                 GB/s       GB/s   Gbit/s      us\n"));
    for (int i = 0; i < c->level_count; i++) {
        const cluster_level *l = &c->levels[i];
        TRY(text_add(t, "  %-10.10s%9s %-13.13s%9.1f%11.1f%9.0f%8.1f%7.3g\n", l->name,
                     text_grouped(l->devices, count), l->link, l->bytes_s / 1e9,
                     2 * l->bytes_s / 1e9, 8 * l->bytes_s / 1e9, 1e6 * l->latency_s, l->taper));
        const double share = cost_links_share(c, i, 2);
        if (share >= 1.0) continue;
        TRY(text_add(t, "            no switch: %.1f GB/s from one to another\n",
                     l->bytes_s * share / 1e9));
    }
    return ST_OK;
}

static status prices_add(cli_context *cli, text *t, const cluster_prices *p)
{
    const struct {
        const char *name;
        double usd;
    } rows[] = {{"on demand", p->on_demand_usd_h},
                {"reserved", p->reserved_usd_h},
                {"for a year", p->reserved_1y_usd_h},
                {"for three years", p->reserved_3y_usd_h},
                {"spot", p->spot_usd_h},
                {"owned", p->owned_usd_h}};
    text all = {.a = cli->a};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].usd > 0.0) TRY(text_add(&all, "$%.2f %s, ", rows[i].usd, rows[i].name));
    }
    TRY(text_add(&all, "per device and hour; $%.2f per kWh", p->kwh_usd));
    return line_add(cli, t, "price", all.bytes);
}

static status failures_add(cli_context *cli, text *t, const cluster *c)
{
    char device_hours[32], devices[32], every[32];
    const cluster_failures *f = &c->failures;
    text causes = {.a = cli->a};
    TRY(text_add(&causes, "one interruption in %s device-hours: every %s on all %s",
                 text_grouped((int64_t)f->mtbf_device_h, device_hours),
                 text_duration_human(3600.0 * f->mtbf_device_h / (double)c->devices, every),
                 text_grouped(c->devices, devices)));
    if (f->share[CAUSE_OTHER] >= 1.0) TRY(text_add(&causes, "; the causes are not known"));
    const char *before = ":";
    for (int i = 0; i < CAUSE_COUNT && f->share[CAUSE_OTHER] < 1.0; i++) {
        if (f->share[i] <= 0.0) continue;
        TRY(text_add(&causes, "%s %s %.1f%%", before, cause_names[i], 100.0 * f->share[i]));
        before = ",";
    }
    return line_add(cli, t, "failures", causes.bytes);
}

status catalog_notes_add(cli_context *cli, text *t, const char *of, const catalog_notes *n)
{
    text assumed = {.a = cli->a};
    if (n->sources.count + n->assumed.count > 0) TRY(text_add(t, "\n%s\n", of));
    for (int64_t i = 0; i < n->sources.count; i++) {
        TRY(line_add(cli, t, "  from", n->sources.items[i]));
    }
    for (int64_t i = 0; i < n->assumed.count; i++) {
        TRY(text_add(&assumed, "%s%s", i == 0 ? "" : ", ", n->assumed.items[i]));
    }
    return n->assumed.count > 0 ? catalog_column_add(cli, t, "  assumed", 11, assumed.bytes)
                                : ST_OK;
}

status catalog_cluster_page(cli_context *cli, const char *name, text *t)
{
    char devices[32];
    cluster *c = NULL;
    catalog_notes notes;
    TRY(arena_new(cli->a, 1, &c));
    TRY(catalog_cluster_load(cli->h, cli->a, name, NULL, 0, c));
    TRY(line_add(cli, t, "cluster", c->about));
    TRY(text_add(t, "devices   %s, %d in a node\n", text_grouped(c->devices, devices),
                 c->node.devices));
    TRY(device_add(cli, t, &c->device));
    TRY(links_add(t, c));
    TRY(prices_add(cli, t, &c->prices));
    TRY(failures_add(cli, t, c));
    TRY(catalog_cluster_notes(cli->h, cli->a, name, &notes));
    TRY(catalog_notes_add(cli, t, "cluster", &notes));
    if (!catalog_is_path(c->device.name)) {
        TRY(catalog_device_notes(cli->h, cli->a, c->device.name, &notes));
        TRY(catalog_notes_add(cli, t, c->device.name, &notes));
    }
    for (int i = 0; i < c->level_count; i++) {
        const char *link = c->levels[i].link;
        if (*link == '\0' || catalog_is_path(link)) continue;
        if (i > 0 && strcmp(link, c->levels[i - 1].link) == 0) continue;
        TRY(catalog_link_notes(cli->h, cli->a, link, &notes));
        TRY(catalog_notes_add(cli, t, link, &notes));
    }
    return ST_OK;
}

status catalog_device_page(cli_context *cli, const char *name, text *t)
{
    cluster_device d;
    catalog_notes notes;
    TRY(catalog_device_load(cli->h, cli->a, name, &d));
    TRY(device_add(cli, t, &d));
    TRY(catalog_device_notes(cli->h, cli->a, name, &notes));
    TRY(catalog_notes_add(cli, t, "figures", &notes));
    return ST_OK;
}

static status settings_add(cli_context *cli, text *t, const char *head, const option_list *l)
{
    text all = {.a = cli->a};
    if (l->count == 0) return ST_OK;
    for (int64_t i = 0; i < l->count; i++) {
        TRY(text_add(&all, "%s%s", i == 0 ? "" : " ", l->items[i]));
    }
    return line_add(cli, t, head, all.bytes);
}

status catalog_run_page(cli_context *cli, const char *name, text *t)
{
    catalog_run r;
    TRY(catalog_run_load(cli->h, cli->a, name, &r));
    TRY(line_add(cli, t, "run", r.about));
    TRY(line_add(cli, t, "model", r.model));
    TRY(line_add(cli, t, "cluster", r.cluster));
    TRY(settings_add(cli, t, "public", &r.told));
    TRY(settings_add(cli, t, "reported", &r.reported));
    TRY(settings_add(cli, t, "assumed", &r.assumed));
    const catalog_notes notes = {.sources = r.sources};
    TRY(catalog_notes_add(cli, t, "figures", &notes));
    return ST_OK;
}

// The file of a preset in the program, or at a path.
static status model_source(cli_context *cli, const char *name, catalog_source *out)
{
    if (catalog_is_path(name)) {
        return catalog_source_read(cli->h, cli->a, "models", "model", name, "", out);
    }
    const model_preset_file *f = model_preset_named(name);
    ASSERT(f != NULL);
    *out = (catalog_source){
        .yaml = f->yaml, .bytes = (int64_t)strlen(f->yaml), .shown = f->name, .folder = ""};
    return ST_OK;
}

status catalog_model_page(cli_context *cli, const char *name, text *t)
{
    decoder_spec s;
    model_preset_facts facts;
    catalog_source yaml = {.yaml = NULL};
    char *about = NULL;
    TRY(model_source(cli, name, &yaml));
    TRY(model_preset_parse(cli->a, yaml.yaml, yaml.bytes, yaml.shown, &s, &facts));
    TRY(arena_format(cli->a, &about, "%s: %s", name, facts.about));
    TRY(line_add(cli, t, "model", about));
    TRY(text_add(t, "shape     %lld layer%s  dim %lld  heads %lld/%lld  ffn %lld  vocab %lld\n",
                 (long long)s.layers, text_plural(s.layers, "s"), (long long)s.dim,
                 (long long)s.heads, (long long)s.kv_heads, (long long)s.ffn_dim,
                 (long long)s.vocab));
    if (s.experts.count > 0) {
        TRY(text_add(t, "experts   %lld, of which a token uses %lld\n", (long long)s.experts.count,
                     (long long)s.experts.top_k));
    }
    // Its lists stand below.
    const char *lists = strstr(yaml.yaml, "\nsources:");
    const size_t length = lists != NULL ? (size_t)(lists - yaml.yaml) : strlen(yaml.yaml);
    TRY(text_add(t, "\nkeys of %s\n%.*s\n", yaml.shown, (int)length, yaml.yaml));
    for (int64_t i = 0; i < facts.differs.count; i++) {
        TRY(line_add(cli, t, "differs", facts.differs.items[i]));
    }
    const catalog_notes notes = {.sources = facts.sources, .assumed = facts.assumed};
    return catalog_notes_add(cli, t, "sources", &notes);
}
