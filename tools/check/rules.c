/* rules.c -- rules.def as tables. */
#include "check.h"

#define GROUP(name, kinds, seconds, first)
#define RULE(group, name, holds) void check_##group##_##name(check *c);
#include "rules.def"
#undef GROUP
#undef RULE

#define GROUP(name, kinds, seconds, first) {#name, kinds, seconds, first},
#define RULE(group, name, holds)
const check_group check_groups[] = {
#include "rules.def"
};
#undef GROUP
#undef RULE

#define GROUP(name, kinds, seconds, first)
#define RULE(group, name, holds) {#group "." #name, #group, #name, holds, check_##group##_##name},
const check_rule check_rules[] = {
#include "rules.def"
};
#undef GROUP
#undef RULE

const uint32_t check_n_groups = sizeof check_groups / sizeof check_groups[0];
const uint32_t check_n_rules = sizeof check_rules / sizeof check_rules[0];
