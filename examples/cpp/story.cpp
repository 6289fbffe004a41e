// story.cpp -- tells a story, as it is generated: story [MODEL] [PROMPT]
//
//   c++ -std=c++17 story.cpp $(pkg-config --cflags --libs minerva) -o story
#include <functional>
#include <iostream>
#include <memory>
#include <minerva/minerva.h>
#include <stdexcept>
#include <string_view>

template <auto free> struct deleter {
    template <class T> void operator()(T *p) const { free(p); }
};
template <class T, auto free> using owned = std::unique_ptr<T, deleter<free>>;

template <class Function> void check(Function call) {
    mn_error err = MN_ERROR;
    if (mn_status st = call(&err))
        throw std::runtime_error(std::string(mn_status_name(st)) + ": " + err.msg);
}

int main(int argc, char **argv) try {
    const char *path = argc > 1 ? argv[1] : nullptr; // nullptr: the demo model
    const char *prompt = argc > 2 ? argv[2] : "Tell me a story.";
    mn_runtime *rt = nullptr;
    mn_model *m = nullptr;
    mn_session *s = nullptr;
    check([&](mn_error *e) { return mn_runtime_create(nullptr, &rt, e); });
    owned<mn_runtime, mn_runtime_free> runtime(rt);
    check([&](mn_error *e) { return mn_model_open(rt, path, &m, e); });
    owned<mn_model, mn_model_free> model(m);
    check([&](mn_error *e) { return mn_session_create(m, nullptr, &s, e); });
    owned<mn_session, mn_session_free> session(s);
    std::function<bool(std::string_view)> print = [](std::string_view text) {
        return static_cast<bool>(std::cout << text << std::flush);
    };
    auto call = [](void *arg, const char *text, uint64_t n) {
        return (*static_cast<decltype(print) *>(arg))({text, n}) ? 0 : 1; // not 0 ends the answer
    };
    check([&](mn_error *e) { return mn_generate(s, prompt, nullptr, call, &print, e); });
    std::cout << '\n';
} catch (const std::exception &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
