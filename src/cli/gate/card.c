// Writes only facts: from the checkpoint's configuration, the ledgers and the gate's record.
#include "cli/gate/card.h"

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"

#include <string.h>

static status front_matter(const gate_source *sources, int64_t count, text *t)
{
    const char *licence = count > 0 ? sources[0].licence : NULL;
    for (int64_t i = 1; i < count && licence != NULL; i++) {
        const char *other = sources[i].licence;
        if (other == NULL || strcmp(other, licence) != 0) licence = NULL;
    }
    TRY(text_add(t, "---\nlibrary_name: transformers\n"));
    if (licence != NULL)
        TRY(text_add(t,
                     "# Every source of the training data has this licence; that "
                     "of the weights is its makers' choice.\n"
                     "data_license: %s\n",
                     licence));
    return text_add(t, "---\n\n");
}

static status training_add(cli_context *cli, const cli_model *model, text *t)
{
    char *yaml = NULL, grouped[32];
    int64_t bytes = 0;
    run_config *r = NULL;
    config *c = NULL;
    ckpt_info info;
    TRY(ckpt_info_read(cli->h, cli->a, model->folder, &info));
    TRY(ckpt_extra_read(cli->h, cli->a, model->folder, "config.resolved.yaml", &yaml, &bytes));
    TRY(text_add(t, "## Training\n\n| | |\n| --- | --- |\n| steps | %lld |\n",
                 (long long)info.step));
    TRY(text_add(t, "| tokens | %s |\n", text_grouped(info.tokens, grouped)));
    if (info.val_loss == info.val_loss) { // NaN: there was no validation
        TRY(text_add(t, "| validation loss | %.4f nats per token |\n", info.val_loss));
    }
    if (yaml == NULL) return text_add(t, "\n");
    TRY(arena_new(cli->a, 1, &r));
    const config_input input = {
        .yaml = yaml, .bytes = bytes, .name = model->folder, .folder = model->folder};
    TRY(config_parse(cli->a, &run_config_table, &input, r, &c));
    TRY(text_add(t, "| objective | %s |\n", run_objective_at(r->train.objective)->name));
    TRY(text_add(t, "| batch | %lld sequences of %lld tokens |\n", (long long)r->train.global_batch,
                 (long long)r->train.seq));
    TRY(text_add(t, "| learning rate | %g |\n", r->optimizer.lr));
    TRY(text_add(t, "| seed | %lld |\n", (long long)r->train.seed));
    if (r->model.from != NULL) TRY(text_add(t, "| weights before | %s |\n", r->model.from));
    return text_add(t, "\n");
}

static status data_add(const gate_source *sources, int64_t count, text *t)
{
    TRY(text_add(t, "## Training data\n\n"));
    if (count == 0) return text_add(t, "Not known.\n\n");
    TRY(text_add(t, "| source | licence | made by |\n| --- | --- | --- |\n"));
    for (int64_t i = 0; i < count; i++) {
        const gate_source *s = &sources[i];
        TRY(text_add(t, "| %s | %s | %s |\n", s->name,
                     s->licence != NULL ? s->licence : "not known",
                     s->generator != NULL ? s->generator : "not known to be synthetic"));
    }
    return text_add(t, "\n");
}

static status gate_add(const gate_passed *p, text *t)
{
    TRY(text_add(t, "## Evaluation\n\n"));
    if (p == NULL) {
        return text_add(t,
                        "This folder was exported without a release gate; no results are known.\n");
    }
    TRY(text_add(t, "| task | metric | value | items |\n| --- | --- | --- | --- |\n"));
    for (int64_t i = 0; i < p->results.count; i++) {
        const gate_result *r = &p->results.items[i];
        TRY(text_add(t, "| %s | %s | %.4f", r->task, r->metric, r->value));
        if (r->error >= 0.0) TRY(text_add(t, " +- %.4f", r->error));
        TRY(text_add(t, " | %lld |\n", (long long)r->items));
    }
    TRY(text_add(t,
                 "\n## Release gate\n\nPolicy %s, version %lld (sha256 %s), on the checkpoint with "
                 "sha256 %s.\n\n| check | demanded | found |\n| --- | --- | --- |\n",
                 p->policy_name, (long long)p->policy_version, p->policy_hash, p->model_hash));
    for (int64_t i = 0; i < p->checks.count; i++) {
        const gate_check *c = &p->checks.items[i];
        TRY(text_add(t, "| %s | %s | %s |\n", c->kind, c->what, c->found));
    }
    return text_add(t, "\nWhat these checks do not measure is not known.\n");
}

status gate_card_write(cli_context *cli, const cli_model *model, int64_t parameters,
                       const gate_passed *passed, const char *folder)
{
    const decoder_spec *m = &model->spec;
    text t = {.a = cli->a};
    char *path = NULL, grouped[32];
    gate_source *sources = NULL;
    int64_t count = 0;
    TRY(gate_sources_find(cli, model, &sources, &count));
    TRY(front_matter(sources, count, &t));
    TRY(text_add(&t,
                 "# Model card\n\nWritten by Trireme " TRIREME_VERSION " from what it knows.\n\n"
                 "| | |\n| --- | --- |\n| architecture | %s |\n| parameters | %s |\n"
                 "| layers | %lld |\n| dim | %lld |\n| heads | %lld, %lld of keys and values |\n"
                 "| context | %lld tokens |\n| vocabulary | %lld |\n\n",
                 m->arch, parameters > 0 ? text_grouped(parameters, grouped) : "an adapter alone",
                 (long long)m->layers, (long long)m->dim, (long long)m->heads,
                 (long long)m->kv_heads, (long long)m->context, (long long)m->vocab));
    if (model->kind != OPERAND_HF) TRY(training_add(cli, model, &t));
    TRY(data_add(sources, count, &t));
    TRY(gate_add(passed, &t));
    TRY(path_join(cli->a, folder, "README.md", &path));
    return host_write_all(cli->h, path, t.bytes, t.length);
}
