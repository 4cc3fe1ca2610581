// Describes the model of a run. `explain`, `simulate` and `plan` also work where the tokenizer is
// missing.
#include "cli/run_model.h"

#include "train/loader.h"

#include <string.h>

status cli_run_model(cli_context *cli, run_config *r, decoder_spec *out, bool *vocab_is_known)
{
    train_loader *loader = NULL;
    *vocab_is_known = r->model.vocab > 0 || r->model.from != NULL;
    if (*vocab_is_known) return model_spec_from_config(cli->h, cli->a, r, out);
    if (train_loader_open(cli->h, cli->a, r, &loader) != ST_OK) {
        error_clear();
        return model_spec_from_config(cli->h, cli->a, r, out);
    }
    const status st = train_loader_model(loader, r, out);
    train_loader_close(loader);
    *vocab_is_known = st == ST_OK;
    return st;
}

void cli_warn_unread(cli_context *cli, const char *const *keys, int64_t count, int readers)
{
    for (int64_t i = 0; i < count; i++) {
        const int length = (int)strcspn(keys[i], "=");
        if (run_config_is_read(keys[i], length, readers)) continue;
        cli_warn(cli, "%.*s has no effect here: it acts only while a run trains", length, keys[i]);
    }
}
