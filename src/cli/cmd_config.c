// `config`: what a configuration says: resolved, checked, described, compared.
#include "cli/commands.h"
