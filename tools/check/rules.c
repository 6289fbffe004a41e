/* rules.c -- the tables of groups and rules, generated from rules.def, which states the name and
 * the meaning of each rule. A rule is a function check_GROUP_NAME of the file of its group; it gets
 * a check, reports by check_fail and check_skip, and owns nothing after it returns. The tables are
 * constant; check_run.c, check_main.c and the documents use them. */
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
