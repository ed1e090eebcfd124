#include <gtest/gtest.h>

#include "replica/model/jinja/template.h"

namespace kvring::replica::jinja {
namespace {

Dict Variables() {
  auto message = [](const char* role, const char* content) {
    return Value::OfDict(
        {{"role", Value(Text::FromUser(role, 0))}, {"content", Value(Text::FromUser(content, 10))}});
  };
  return {{"messages",
           Value::OfList({message("system", "S"), message("user", "hi"), message("assistant", "yo")})},
          {"n", Value(int64_t{3})},
          {"flag", Value(false)},
          {"d", Value::OfDict({{"a", Value(int64_t{1})}, {"b", Value::String("x")}})}};
}

std::string Render(std::string_view source) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return "PARSE " + std::string(parsed.status().message());
  const auto text = parsed->Render(Variables(), 1'700'000'000);
  return text.ok() ? text->bytes() : "ERROR " + std::string(text.status().message());
}

// What Python's Jinja2 3.1 with trim_blocks and lstrip_blocks gives for the same source.
TEST(Jinja, Expressions_AsInPython) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 1 + 2 * 3 ** 2 - 4 // 3 }}", "18"},
      {"{{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ -7 // 2 }}", "1 2 3.5 -4"},
      {"{{ 'a' ~ 1 ~ none ~ true }}", "a1NoneTrue"},
      {"{{ not flag and n == 3 or x }}", "True"},
      {"{{ 'b' if n > 3 else 'c' }}", "c"},
      {"{{ 'b' if false }}", ""},
      {"{{ [1, 'a', [2]] }} {{ {'k': 1} }}", "[1, 'a', [2]] {'k': 1}"},
      {"{{ messages[-1].content }} {{ messages[0]['role'] }}", "yo system"},
      {"{{ messages[1:] | length }} {{ [1,2,3][::-1] }}", "2 [3, 2, 1]"},
      {"{{ 'hello'[1:3] }} {{ 'hello'[-1] }} {{ 'abc'[::-1] }}", "el o cba"},
      {"{{ 'S' in messages[0].content }} {{ 'z' not in 'abc' }} {{ 'a' in d }}", "True True True"},
      {"{{ missing is defined }} {{ n is defined }} {{ missing | default('x') }}", "False True x"},
      {"{{ d.a is number }} {{ d is mapping }} {{ d.b is string }} {{ none is none }}",
       "True True True True"},
      {"{{ n is odd }} {{ n is divisibleby 3 }} {{ n is not none }}", "True True True"},
      {"{{ '  x '.strip() ~ '|' ~ ' y '|trim }}", "x|y"},
      {"{{ 'a,b,c'.split(',') | join('-') }} {{ 'x'.upper() }} {{ 'hello world'.title() }}",
       "a-b-c X Hello World"},
      {"{{ 'aXbX'.replace('X', '') }} {{ 'pre.x'.startswith('pre') }} {{ 'a</t>b'.split('</t>')[-1] }}",
       "ab True b"},
      {"{{ d | tojson }} {{ [1, none, true, 'q\"'] | tojson }}",
       "{\"a\": 1, \"b\": \"x\"} [1, null, true, \"q\\\"\"]"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=x;"},
      {"{{ d.get('z', 5) }} {{ d.get('z') }}", "5 None"},
      {"{{ range(3) | list }} {{ range(5, 0, -2) | list }}", "[0, 1, 2] [5, 3, 1]"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}", "['hi']"},
      {"{{ messages | rejectattr('role', 'equalto', 'user') | list | length }}", "2"},
      {"{{ strftime_now('%Y-%m-%d') }}", "2023-11-14"},
      {"{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 2 <= 1 }}", "True True False"}};
  for (const auto& [source, expected] : cases) EXPECT_EQ(Render(source), expected) << source;
}

TEST(Jinja, Statements_AsInPython) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% for m in messages %}{{ loop.index }}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
       "1system,2user,3assistant"},
      {"{% for m in messages if m.role != 'user' %}{{ loop.length }}{% else %}none{% endfor %}", "22"},
      {"{% for x in [] %}{% else %}empty{% endfor %}", "empty"},
      {"{% set x = 1 %}{% for i in [1,2] %}{% set x = 5 %}{% endfor %}{{ x }}", "1"},
      {"{% set ns = namespace(x=1) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
       "4"},
      {"{% set t %}a{{ n }}{% endset %}{{ t }}{{ t }}", "a3a3"},
      {"{% macro f(a, b='z') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(b=2, a='q') }}", "[1z][q2]"},
      {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif "
       "%}{{ i }}{% endfor %}",
       "013"},
      {"{% if flag %}a{% elif n == 3 %}b{% else %}c{% endif %}", "b"},
      {"{% generation %}x{% endgeneration %}", "x"},
      {"{# note #}x", "x"}};
  for (const auto& [source, expected] : cases) EXPECT_EQ(Render(source), expected) << source;
}

TEST(Jinja, WhiteSpace_AsInPythonWithTrimAndLstrip) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
      {"a {%- if true -%} b {%- endif -%} c", "abc"},
      {"{{ 'x' }}\n{{ 'y' }}\n", "x\ny\n"},
      {"a  {{- ' b ' -}}  c", "a b c"},
      {"{{ 'x' }}  {% if true %}y{% endif %}", "x  y"},
      {"{# c #}\nx", "x"},
      {"{% set a = 1 %}\n\nb", "\nb"}};
  for (const auto& [source, expected] : cases) EXPECT_EQ(Render(source), expected) << source;
}

TEST(Jinja, Errors_NameTheLine) {
  EXPECT_EQ(Render("\n\n{{ 1 + }}"), "PARSE chat template, line 3: unexpected ''");
  EXPECT_EQ(Render("{% include '/etc/passwd' %}"),
            "PARSE chat template, line 1: 'include' is not a statement of this template language");
  EXPECT_EQ(Render("x\n{{ raise_exception('no') }}"), "ERROR chat template, line 2: no");
  for (const char* bad : {"{{ x", "{% if a %}", "{% endif %}", "{{ 'a }}", "{{ (1 }}", "{{ f(1 2) }}",
                          "{% for x %}{% endfor %}", "{{ x | }}", "{{ a.1 }}", "{% set %}", "{# open",
                          "{{ {1: 2} }}", "{% else %}", "{{ x is }}"}) {
    EXPECT_TRUE(Render(bad).starts_with("PARSE")) << bad << ": " << Render(bad);
  }
}

// SEC-07: nothing but the given data, no file, and an end within bounds.
TEST(Jinja, ClosedBox_SEC_07) {
  EXPECT_TRUE(Render("{{ ''.__class__.__mro__ }}").starts_with("ERROR"));
  EXPECT_EQ(Render("{{ ''.__class__ }}{{ messages.__len__ }}{{ range.__globals__ }}"), "");
  EXPECT_TRUE(Render("{% for i in range(10**9) %}x{% endfor %}").starts_with("ERROR"));
  EXPECT_TRUE(Render("{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}x{% "
                     "endfor %}{% endfor %}{% endfor %}")
                  .starts_with("ERROR"));
  EXPECT_TRUE(Render("{{ 'x' * 10**9 }}").starts_with("ERROR"));
  EXPECT_TRUE(Render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").starts_with("ERROR"));
  EXPECT_TRUE(Render("{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(100) %}{% set ns.s = "
                     "ns.s ~ ns.s %}{% endfor %}")
                  .starts_with("ERROR"));
  std::string nested;
  for (int i = 0; i < 10'000; ++i) nested += "{% macro m() %}";
  EXPECT_TRUE(Render(nested).starts_with("PARSE"));
  EXPECT_TRUE(Render("{{ " + std::string(10'000, '(') + " }}").starts_with("PARSE"));
  EXPECT_TRUE(Render("{{ " + std::string(10'000, '-') + "1 }}").starts_with("PARSE"));
  std::string nots;
  for (int i = 0; i < 10'000; ++i) nots += "not ";
  EXPECT_TRUE(Render("{{ " + nots + "x }}").starts_with("PARSE"));
}

// SEC-07: sizes, depth and time of values on the way, not of the output alone. Each of these would take
// gigabytes, minutes or the whole stack.
TEST(Jinja, ValuesOnTheWay_AreBounded_SEC_07) {
  const std::string grown =
      "{% set ns = namespace(s='aaaaaaaaaaaaaaaa', l=[1]) %}{% for i in range(18) %}{% set ns.s = ns.s ~ "
      "ns.s %}"
      "{% endfor %}";
  for (const std::string source :
       {"{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ "
        "ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
        "ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ ns.x == ns.x }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set ns = namespace(f=d.get) %}{% for i in range(1000) %}{% set ns.f = {'a': ns.f}.get %}{% "
        "endfor %}"}) {
    EXPECT_TRUE(Render(source).starts_with("ERROR")) << source;
  }
  for (const std::string source :
       {"{% for i in range(100000) %}{% set x = ns.s[1:] %}{% endfor %}",
        "{% for i in range(100000) %}{% if ns.s == ns.s %}{% endif %}{% endfor %}",
        "{% for i in range(100000) %}{% if 'b' in ns.s %}{% endif %}{% endfor %}",
        "{% if ns.s[1:] ~ 'b' in ns.s %}{% endif %}", "{% for c in ns.s %}{% endfor %}",
        "{% for i in range(100000) %}{{ ns.s | length }}{% endfor %}",
        "{{ [ns.s, ns.s, ns.s, ns.s, ns.s, ns.s] | join }}",
        "{{ [ns.s, ns.s, ns.s, ns.s, ns.s] | tojson }}"}) {
    EXPECT_TRUE(Render(grown + source).starts_with("ERROR")) << source;
  }
  EXPECT_EQ(Render("{{ range(0, 1000000000000000, 999999999999999) | list | length }}"), "2");
  EXPECT_EQ(Render("{{ 'abc'[1::999999999999999] }}{{ [1, 2][::-999999999999999] }}"), "b[2]");
  EXPECT_EQ(Render("{{ (10.0 ** 300) | int }}"), "0");
}

// Namespaces may hold each other; a render gives back what it took (the leak checker is the judge).
TEST(Jinja, NamespacesThatHoldEachOther_AreFreed_SEC_07) {
  EXPECT_EQ(Render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}{{ a }}"),
            "<namespace>");
}

TEST(Jinja, Spans_FollowTheUsersBytes) {
  const auto parsed = Template::Parse(
      "<{{ messages[0].content ~ '-' ~ messages[1].content[1:] }}>{{ messages[1].content | upper }}");
  const Text text = parsed->Render(Variables(), 0).value();
  EXPECT_EQ(text.bytes(), "<S-i>HI");
  ASSERT_EQ(text.spans().size(), 3u);
  EXPECT_EQ(text.spans()[0].begin, 1u);
  EXPECT_EQ(text.spans()[1].origin, 11u);
  EXPECT_TRUE(text.spans()[1].exact);
  EXPECT_FALSE(text.spans()[2].exact);
  EXPECT_EQ(text.spans()[2].origin, 12u);
}

}  // namespace
}  // namespace kvring::replica::jinja
