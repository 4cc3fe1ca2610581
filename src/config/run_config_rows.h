// The forms of a row of the table of run_config.
#ifndef CONFIG_RUN_CONFIG_ROWS_H
#define CONFIG_RUN_CONFIG_ROWS_H

#include "config/run_config.h"

#define AT(field) (int64_t) offsetof(run_config, field)
#define INT(k, field, def, lo, hi, class, u, ...)                                                \
    {                                                                                            \
        .key = (k), .kind = OPTION_INT, .offset = AT(field), .default_text = (def), .min = (lo), \
        .max = (hi), .on_resume = OPTION_##class, .unit = (u), __VA_ARGS__                       \
    }
#define REAL(k, field, def, lo, hi, class, ...)                                                   \
    {                                                                                             \
        .key = (k), .kind = OPTION_REAL, .offset = AT(field), .default_text = (def), .min = (lo), \
        .max = (hi), .on_resume = OPTION_##class, .unit = "", __VA_ARGS__                         \
    }
#define SHARE(k, field, def, class, ...)                                                       \
    {                                                                                          \
        .key = (k), .kind = OPTION_REAL, .offset = AT(field), .default_text = (def), .max = 1, \
        .on_resume = OPTION_##class, .unit = "share", __VA_ARGS__                              \
    }
#define CHOICE(k, field, def, names, class, ...)                                       \
    {                                                                                  \
        .key = (k), .kind = OPTION_CHOICE, .offset = AT(field), .default_text = (def), \
        .choices = (names), .on_resume = OPTION_##class, .unit = "", __VA_ARGS__       \
    }
#define OTHER(k, what, field, def, class, ...)                                         \
    {                                                                                  \
        .key = (k), .kind = OPTION_##what, .offset = AT(field), .default_text = (def), \
        .on_resume = OPTION_##class, .unit = "", __VA_ARGS__                           \
    }

#endif
