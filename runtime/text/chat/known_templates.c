/* known_templates.c -- chat templates by name, for files whose makers left theirs out. Each is the form
 * that the family's own tokenizer_config.json has, without tools. */
#include "text/chat/chat.h"
#include <string.h>

typedef struct {
    const char *name, *source;
} known_template;

#define EACH "{% for m in messages %}"
#define ASK "{% if add_generation_prompt %}"
static const known_template known[] = {
    {"chatml", EACH "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
                    "{% endfor %}" ASK "{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"gemma", "{{ bos_token }}" EACH
              "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\\n' "
              "+ m['content'] + '<end_of_turn>\\n' }}{% endfor %}" ASK
              "{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"llama2", EACH "{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] + ' ' + eos_token }}"
                    "{% elif m['role'] == 'system' %}{% else %}"
                    "{{ bos_token + '[INST] ' + ('<<SYS>>\\n' + messages[0]['content'] + "
                    "'\\n<</SYS>>\\n\\n' if loop.index0 == 1 and messages[0]['role'] == 'system' "
                    "else '') + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}"},
    {"llama3",
     "{{ bos_token }}" EACH "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + "
     "m['content']|trim + '<|eot_id|>' }}{% endfor %}" ASK
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"mistral", "{{ bos_token }}" EACH
                "{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] + eos_token }}{% else %}"
                "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}"},
    {"phi3", EACH "{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}" ASK
                  "{{ '<|assistant|>\\n' }}{% endif %}"},
    {"zephyr", EACH "{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token + '\\n' }}"
                    "{% endfor %}" ASK "{{ '<|assistant|>\\n' }}{% endif %}"},
};

const char *mn_chat_known(const char *name) {
    for (size_t i = 0; i < MN_COUNT(known); i++)
        if (!strcmp(known[i].name, name))
            return known[i].source;
    return NULL;
}

void mn_chat_known_names(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(known); i++)
        mn_text_printf(out, "%s%s", i ? ", " : "", known[i].name);
}
