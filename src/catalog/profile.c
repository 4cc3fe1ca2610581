// See profile.h. One row a key, in SI units as cost_profile has them.
#include "catalog/profile.h"

#include "catalog/sheet.h"

#include <string.h>

#define AT(field) .offset = (int64_t)offsetof(cost_profile, field)
#define SPEED(k, h)                                                                               \
    {                                                                                             \
        .key = #k, .kind = OPTION_REAL, AT(k), .min = 0.01, .max = 100, .value = "1", .help = (h) \
    }
#define SHARE(k, v, h)                                                                       \
    {                                                                                        \
        .key = #k, .kind = OPTION_REAL, AT(k), .min = 0, .max = 1, .value = (v), .help = (h) \
    }
#define FIGURE(k, most, h)                                                          \
    {                                                                               \
        .key = #k, .kind = OPTION_REAL, AT(k), .min = 0, .max = (most), .help = (h) \
    }
#define MICROSECONDS(k, field, h)                                                            \
    {                                                                                        \
        .key = #k, .kind = OPTION_REAL, AT(field), .max = 100000, .scale = 1e-6, .help = (h) \
    }
#define WHOLE(k, most, h)                                                                          \
    {                                                                                              \
        .key = #k, .kind = OPTION_INT, AT(k), .bytes = sizeof(int64_t), .max = (most), .help = (h) \
    }

// The defaults are those of cost_profile_trireme(), which a test holds them to.
static const catalog_field rows[] = {
    SPEED(product, "speed of matrix products, relative to the device's entry"),
    SPEED(attention, "of attention"),
    FIGURE(attention_half, 1e6,
           "positions at which attention has half of its speed; 0: the device's entry"),
    SPEED(memory, "of operations that memory holds up"),
    SPEED(pointwise,
          "bytes that element-wise operations move, relative to the plan's; below 1: fused"),
    FIGURE(eager_pointwise, 100,
           "the same, of RMSNorm, rotary positions and gated activations that are chains of a "
           "framework's operations; 0: as pointwise"),
    SPEED(launch, "time of a kernel's launch, relative to the device's entry"),
    SPEED(attention_kernels, "kernels that an attention is launched as; 1: it is fused"),
    FIGURE(step_s, 60, "seconds of the host's work in each step that nothing hides"),
    MICROSECONDS(
        issue_us, issue_s,
        "microseconds in which the host issues an operation of a layer; 0: it is always ahead"),
    MICROSECONDS(
        expert_issue_us, expert_issue_s,
        "of a layer's experts in a forward pass, besides; twice as many in a backward pass"),
    MICROSECONDS(expert_product_us, expert_product_s, "of each expert's part of a product"),
    {.key = "expert_wait",
     .kind = OPTION_BOOL,
     AT(expert_wait),
     .help = "the host waits until the router has said how many rows go where"},
    SPEED(tp_bandwidth,
          "bandwidth of tensor parallelism's messages, relative to the links' entries"),
    SPEED(cp_bandwidth, "of context parallelism's"),
    SPEED(dp_bandwidth, "of data parallelism's"),
    SPEED(pp_bandwidth, "of the pipeline's"),
    SPEED(ep_bandwidth, "of expert parallelism's"),
    SHARE(tp_overlap, "0", "share of tensor parallelism's messages that products hide"),
    SHARE(cp_overlap, "0", "of context parallelism's"),
    SHARE(
        dp_overlap, "1",
        "of data parallelism's; of gradients that are summed once in a step the rest comes after the "
        "backward pass"),
    {.key = "dp_beside",
     .kind = OPTION_BOOL,
     AT(dp_beside),
     .help = "where there is no pipeline sums of gradients go beside the backward pass, whatever "
             "dp_overlap says"},
    SHARE(pp_overlap, "1", "of the pipeline's"),
    SHARE(ep_overlap, "0", "of expert parallelism's"),
    {.key = "beside",
     .kind = OPTION_BOOL,
     AT(beside),
     .value = "true",
     .help =
         "messages of tensor and context parallelism go beside products as the plan has them, and are "
         "hidden by what is played then; no: tp_overlap and cp_overlap say how much, and rows that "
         "layout.sp gathers stand between products"},
    WHOLE(ep_nodes, 1 << 20,
          "of experts: a token's row goes once to each node, to so many at most; 0: to each "
          "expert by itself"),
    SHARE(ep_bytes, "1", "of experts: bytes of rows that travel, relative to the plan's"),
    SPEED(imbalance, "of experts: rows of the fullest rank, relative to the mean"),
    FIGURE(
        ep_gb_s, 1e5,
        "of experts: gigabytes a second that a rank sends at most, however fast its links are; 0: no "
        "bound"),
    FIGURE(cp_gb_s, 1e5, "the same, of context parallelism's messages"),
    {.key = "expert_sorts",
     .kind = OPTION_BOOL,
     AT(expert_sorts),
     .help = "rows that have come are put in order of a rank's experts, and back before they go"},
    {.key = "rings",
     .kind = OPTION_BOOL,
     AT(rings),
     .help =
         "gathers, scatters and sums go round rings of all ranks, so that a node's links carry the "
         "pieces of its own ranks too, as NCCL's; no: what other nodes have, once"},
    WHOLE(
        sum_bytes, 1e15,
        "bytes of gradients that are summed or scattered at once, when all of them are there, of what is "
        "summed once in a step; 0: layer by layer"),
    MICROSECONDS(
        hop_us, hop_s,
        "microseconds of a hop within a node, of gathers and scatters that go round a ring of "
        "all ranks; 0: the links' latencies, and doubling where that is quicker"),
    MICROSECONDS(hop_outside_us, hop_outside_s, "the same between nodes"),
    MICROSECONDS(
        piece_us, piece_s,
        "microseconds for each rank's piece of what ZeRO-3 gathers and scatters, which goes "
        "tensor by tensor through a buffer then; 0: layer by layer, in place"),
    WHOLE(reuse_distance, 1e15,
          "with piece_us: a weight is gathered again between being computed again and its "
          "gradient where so many elements of others are used; 0: always"),
    WHOLE(
        persistent, 1e15,
        "with piece_us: weights of fewer elements are whole on every rank of ZeRO-3, and gathered "
        "after the update, piece by piece"),
    SHARE(crowding, "0",
          "by which products slow down while messages go beside them over the innermost links; "
          "slower ones take as much less"),
    SPEED(activations, "bytes kept for the backward pass, relative to the plan's"),
    FIGURE(score_bytes, 16, "bytes kept of each score where attention is not fused; 0: it is"),
    FIGURE(mask_bytes, 16,
           "bytes kept of each element of a layer's rows: the masks of its dropouts"),
    FIGURE(logit_bytes, 64,
           "bytes of each logit of a micro-batch that are there at once at the loss; 0: they go by "
           "chunks"),
    {.key = "whole_logits",
     .kind = OPTION_BOOL,
     AT(whole_logits),
     .help = "each rank of tp gathers the logits of all columns, and makes their loss"},
    {.key = "whole_head",
     .kind = OPTION_BOOL,
     AT(whole_head),
     .help = "each rank of tp makes the logits of all columns by itself; bytes of the weight are a "
             "piece's"},
    {.key = "fp8_inputs",
     .kind = OPTION_BOOL,
     AT(fp8_inputs),
     .help = "under fp8 the inputs of products are kept for the gradients of weights in one byte"},
    {.key = "fp8_weights",
     .kind = OPTION_BOOL,
     AT(fp8_weights),
     .help = "under fp8 weights of products are kept in one byte, and in that alone"},
    {.key = "fp8_gathers",
     .kind = OPTION_BOOL,
     AT(fp8_gathers),
     .help = "under fp8 rows are cast before layout.sp gathers them over tp"},
    {.key = "pp_pieces",
     .kind = OPTION_BOOL,
     AT(pp_pieces),
     .help =
         "between stages each rank of tp sends a piece of the rows that all of them have, which is "
         "gathered there"},
    FIGURE(sum16_bytes, 100,
           "bytes that a kernel of its own moves for each element of a weight's gradient, in each "
           "micro-batch, to add it to a sum of two bytes; 0: what makes it adds it"),
    FIGURE(sum32_bytes, 100, "the same, to a sum of four bytes"),
    {.key = "whole_again",
     .kind = OPTION_BOOL,
     AT(whole_again),
     .help = "full recomputation runs all of a layer again, what no gradient needs too"},
    WHOLE(live_parameters, 1e15,
          "elements of whole weights that ZeRO-3 holds at a time; 0: two layers', as the plan"),
    WHOLE(
        reduce_bucket, 1e15,
        "elements of the bucket that ZeRO-2 and 3 copy a gradient to; 0: none, a layer's are held"),
    SHARE(slack, "0", "of the bytes that come and go within a step, which the allocator loses"),
    WHOLE(loose_grads, 8,
          "gradients of at most so many bytes an element come and go, too; wider ones have a "
          "buffer that stays"),
    WHOLE(context_bytes, 1e12, "bytes of the runtime and its libraries on each device"),
};
static const catalog_field lists[] = {
    {.key = "fitted_on", .kind = OPTION_LIST, .help = "tables of published figures"},
};
static const catalog_fields fields = {rows, COUNT_OF(rows), ""};
static const catalog_fields list_fields = {lists, COUNT_OF(lists), ""};

static status sheet_read(const host *h, arena *a, const char *name, const char *const *overrides,
                         int64_t override_count, catalog_sheet **out)
{
    TRY(catalog_sheet_create(a, "A software's profile", out));
    TRY(catalog_sheet_add(*out, "", &fields, 0, false));
    TRY(catalog_sheet_add(*out, "", &list_fields, -1, false));
    return catalog_sheet_read(*out, h, "profiles", "profile", name, "", overrides, override_count);
}

// What the program's entry of a device changes; NULL: nothing.
static status base_of_device(arena *a, const char *device, char **out)
{
    static const char key[] = "base:";
    const catalog_file *f = catalog_file_find("devices", device);
    *out = NULL;
    if (f == NULL || strncmp(f->yaml, key, sizeof key - 1) != 0) return ST_OK;
    const char *begin = f->yaml + sizeof key - 1 + strspn(f->yaml + sizeof key - 1, " ");
    return arena_format(a, out, "%.*s", (int)strcspn(begin, " \n"), begin);
}

// NAME.DEVICE if the program has it, or that of the device that DEVICE is based on; else NAME.
static status variant_name(arena *a, const char *name, const char *device, const char **out)
{
    char *wanted = NULL, *base = NULL;
    *out = name;
    if (catalog_is_path(name)) return ST_OK;
    for (; device != NULL; device = base) {
        TRY(arena_format(a, &wanted, "%s.%s", name, device));
        if (catalog_file_find("profiles", wanted) != NULL) {
            *out = wanted;
            return ST_OK;
        }
        TRY(base_of_device(a, device, &base));
    }
    return ST_OK;
}

status catalog_profile_load(const host *h, arena *a, const char *name, const char *device,
                            const char *const *overrides, int64_t override_count, cost_profile *out)
{
    catalog_sheet *s = NULL;
    const char *variant = NULL;
    char *shown = NULL;
    cost_profile p = cost_profile_trireme();
    TRY(variant_name(a, name, device, &variant));
    TRY(sheet_read(h, a, variant, overrides, override_count, &s));
    catalog_sheet_apply(s, &p);
    TRY(arena_strdup(a, variant, &shown));
    p.name = shown;
    p.about = catalog_sheet_text(s, "about");
    *out = p;
    return ST_OK;
}

status catalog_profile_fitted(const host *h, arena *a, const char *name, option_list *out)
{
    catalog_sheet *s = NULL;
    TRY(sheet_read(h, a, name, NULL, 0, &s));
    *out = *catalog_sheet_list(s, "fitted_on");
    return ST_OK;
}
