// Reads profiles: one row per key, in the SI units of cost_profile; the rows of habits come from
// their table (cost/habits.h).
#include "catalog/profile.h"

#include "catalog/entry_internal.h"
#include "catalog/sheet.h"
#include "cost/habits.h"

#include <string.h>

#define AT(field) .offset = (int64_t)offsetof(cost_profile, field)
#define SPEED(k, field, h)                                                                 \
    {                                                                                      \
        .key = (k), .kind = OPTION_REAL, AT(field), .min = 0.01, .max = 100, .value = "1", \
        .help = (h)                                                                        \
    }
#define SHARE(k, field, v, h)                                                                     \
    {                                                                                             \
        .key = (k), .kind = OPTION_REAL, AT(field), .min = 0, .max = 1, .value = (v), .help = (h) \
    }

// The defaults are those of cost_profile_trireme(); a test compares them.
static const catalog_field rows[] = {
    SPEED("product", gemm, "speed of GEMMs, relative to the device's entry"),
    SPEED("attention", attention, "speed of attention, relative to the device's entry"),
    SPEED("memory", memory, "speed of memory-bound operations, relative to the device's entry"),
    SPEED("launch", launch, "time to launch a kernel, relative to the device's entry"),
    SPEED("tp_bandwidth", bandwidth[TRAFFIC_TP],
          "bandwidth of tensor parallelism's collectives, relative to the links' entries"),
    SPEED("cp_bandwidth", bandwidth[TRAFFIC_CP],
          "bandwidth of context parallelism's collectives, relative to the links' entries"),
    SPEED("dp_bandwidth", bandwidth[TRAFFIC_DP],
          "bandwidth of data parallelism's collectives, relative to the links' entries"),
    SPEED("pp_bandwidth", bandwidth[TRAFFIC_PP],
          "bandwidth of transfers between pipeline stages, relative to the links' entries"),
    SPEED("ep_bandwidth", bandwidth[TRAFFIC_EP],
          "bandwidth of expert parallelism's collectives, relative to the links' entries"),
    SHARE("tp_overlap", overlap[TRAFFIC_TP], "0",
          "share of the time of tensor parallelism's collectives that GEMMs hide"),
    SHARE("cp_overlap", overlap[TRAFFIC_CP], "0",
          "share of the time of context parallelism's collectives that GEMMs hide"),
    SHARE("dp_overlap", overlap[TRAFFIC_DP], "1",
          "share of the time of data parallelism's collectives that GEMMs hide; if gradients are "
          "summed once in a step, the rest runs after the backward pass"),
    SHARE("pp_overlap", overlap[TRAFFIC_PP], "1",
          "share of the time of transfers between pipeline stages that GEMMs hide"),
    SHARE("ep_overlap", overlap[TRAFFIC_EP], "0",
          "share of the time of expert parallelism's collectives that GEMMs hide"),
    SHARE("slack", slack, "0",
          "share of the bytes allocated within a step that the allocator loses"),
    {.key = "context_bytes",
     .kind = OPTION_INT,
     AT(context_bytes),
     .bytes = sizeof(int64_t),
     .max = 1e12,
     .help = "bytes of the runtime and its libraries on each device"},
};

#define HABIT_REAL(field, name, unit, least, most, none, text) \
    {.key = #name,                                             \
     .kind = OPTION_REAL,                                      \
     .offset = (int64_t)offsetof(cost_habits, field),          \
     .scale = (unit),                                          \
     .min = (least),                                           \
     .max = (most),                                            \
     .value = #none,                                           \
     .help = (text)},
#define HABIT_COUNT(field, greatest, text)            \
    {.key = #field,                                   \
     .kind = OPTION_INT,                              \
     .offset = (int64_t)offsetof(cost_habits, field), \
     .bytes = sizeof(int64_t),                        \
     .max = (greatest),                               \
     .help = (text)},
#define HABIT_FLAG(field, none, text)                 \
    {.key = #field,                                   \
     .kind = OPTION_BOOL,                             \
     .offset = (int64_t)offsetof(cost_habits, field), \
     .value = #none,                                  \
     .help = (text)},
static const catalog_field habit_rows[] = {COST_HABITS(HABIT_REAL, HABIT_COUNT, HABIT_FLAG)};

static const catalog_field lists[] = {
    {.key = "fitted_on", .kind = OPTION_LIST, .help = "tables of published figures"},
};
static const catalog_fields fields = {rows, COUNT_OF(rows), ""};
static const catalog_fields habit_fields = {habit_rows, COUNT_OF(habit_rows), ""};
static const catalog_fields list_fields = {lists, COUNT_OF(lists), ""};

// The values of a file.
typedef struct profile_sheet {
    cost_profile profile;
    cost_habits habits;
} profile_sheet;

static status rows_create(arena *a, catalog_sheet **out)
{
    TRY(catalog_sheet_create(a, "A software's profile", out));
    TRY(catalog_sheet_add(*out, "", &fields, offsetof(profile_sheet, profile), false));
    TRY(catalog_sheet_add(*out, "", &habit_fields, offsetof(profile_sheet, habits), false));
    return catalog_sheet_add(*out, "", &list_fields, -1, false);
}

static status sheet_read(const host *h, arena *a, const char *name, const char *const *overrides,
                         int64_t override_count, catalog_sheet **out)
{
    TRY(rows_create(a, out));
    return catalog_sheet_read(*out, h, "profiles", "profile", name, "", overrides, override_count);
}

status catalog_profile_keys(arena *a, const option_table **out)
{
    catalog_sheet *s = NULL;
    TRY(rows_create(a, &s));
    *out = catalog_sheet_table(s);
    return ST_OK;
}

status catalog_profile_sheet(const host *h, arena *a, const char *name, catalog_sheet **out)
{
    return sheet_read(h, a, name, NULL, 0, out);
}

// The base of the program's entry for a device; NULL: none.
static status base_of_device(arena *a, const char *device, char **out)
{
    static const char key[] = "base:";
    const catalog_file *f = catalog_file_find("devices", device);
    *out = NULL;
    if (f == NULL || strncmp(f->yaml, key, sizeof key - 1) != 0) return ST_OK;
    const char *begin = f->yaml + sizeof key - 1 + strspn(f->yaml + sizeof key - 1, " ");
    return arena_format(a, out, "%.*s", (int)strcspn(begin, " \n"), begin);
}

// NAME.DEVICE if the program has it, or that of a device that DEVICE is based on; else NAME.
static status variant_name(arena *a, const char *name, const char *device, const char **out)
{
    char *wanted = NULL, *base = NULL;
    *out = name;
    if (catalog_is_path(name)) return ST_OK;
    for (; device != NULL; device = base) {
        TRY(arena_format(a, &wanted, "%s.%s", name, device));
        const catalog_file *f = catalog_file_find("profiles", wanted);
        if (f != NULL) {
            *out = f->name;
            return ST_OK;
        }
        TRY(base_of_device(a, device, &base));
    }
    return ST_OK;
}

#define IS_NONE_REAL(field, name, unit, least, most, none, text) all = all && h->field == (none);
#define IS_NONE_COUNT(field, greatest, text)                     all = all && h->field == 0;
#define IS_NONE_FLAG(field, none, text)                          all = all && h->field == (none);
static bool is_none(const cost_habits *h)
{
    bool all = true;
    COST_HABITS(IS_NONE_REAL, IS_NONE_COUNT, IS_NONE_FLAG)
    return all;
}

status catalog_profile_load(const host *h, arena *a, const char *name, const char *device,
                            const char *const *overrides, int64_t override_count, cost_profile *out)
{
    catalog_sheet *s = NULL;
    const char *variant = NULL;
    char *shown = NULL;
    profile_sheet *all = NULL;
    TRY(arena_new(a, 1, &all));
    TRY(variant_name(a, name, device, &variant));
    TRY(sheet_read(h, a, variant, overrides, override_count, &s));
    catalog_sheet_apply(s, all);
    TRY(arena_strdup(a, variant, &shown));
    all->profile.name = shown;
    all->profile.about = catalog_sheet_text(s, "about");
    if (!is_none(&all->habits)) all->profile.habits = &all->habits;
    *out = all->profile;
    return ST_OK;
}

status catalog_profile_fitted(const host *h, arena *a, const char *name, option_list *out)
{
    catalog_sheet *s = NULL;
    TRY(sheet_read(h, a, name, NULL, 0, &s));
    *out = *catalog_sheet_list(s, "fitted_on");
    return ST_OK;
}
