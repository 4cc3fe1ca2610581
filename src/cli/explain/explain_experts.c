// Which experts each rank holds: the ranks that share the experts of a layer, and those with copies
// of the same ones.
#include "cli/explain/explain.h"

#include <stdio.h>

enum { ROWS = 16, HOLDERS = 6 };

// Prints the ranks of the first stage that hold the experts of place `place`, at most HOLDERS.
static void print_holders(const explain *x, int64_t ranks, int32_t place)
{
    char number[32];
    int64_t count = 0;
    for (int64_t i = 0; i < ranks; i++) {
        const plan_mesh at = plan_mesh_from(&x->mesh, i);
        if (plan_ep_place(&at) != place) continue;
        if (count < HOLDERS)
            cli_print(x->cli, "%s%s", count > 0 ? ", " : "", text_grouped(i, number));
        count++;
    }
    if (count > HOLDERS) cli_print(x->cli, " and %lld more", (long long)(count - HOLDERS));
}

void explain_experts(const explain *x)
{
    const int64_t experts = x->spec.experts.count, ep = plan_mesh_ep(&x->mesh);
    const int64_t each = experts / ep, stage = x->ranks / x->r->layout.pp;
    const int64_t layers = model_mixed_layers(&x->spec);
    if (experts == 0) return;
    cli_print(x->cli, "\nexperts   %lld in each of %lld layer%s, %lld for each token\n",
              (long long)experts, (long long)layers, text_plural(layers, "s"),
              (long long)x->spec.experts.top_k);
    if (ep == 1) {
        cli_print(x->cli, "  every rank of a layer's stage holds all of them\n");
        return;
    }
    cli_print(x->cli, "  %-12s  ranks of the first stage%s\n", "experts",
              x->r->layout.pp > 1 ? "; those of other stages likewise" : "");
    for (int64_t k = 0; k < ep && k < ROWS; k++) {
        char range[64];
        const int n = snprintf(range, sizeof(range), "%lld", (long long)(k * each));
        if (each > 1) {
            (void)snprintf(range + n, sizeof(range) - (size_t)n, "-%lld",
                           (long long)((k + 1) * each - 1));
        }
        cli_print(x->cli, "  %-12s  ", range);
        print_holders(x, stage, (int32_t)k);
        cli_print(x->cli, "\n");
    }
    if (ep > ROWS) cli_print(x->cli, "  ... %lld more\n", (long long)(ep - ROWS));
}
