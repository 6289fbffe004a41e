"""Tells a story, as it is generated: story.py [MODEL] [PROMPT]

With the wheel installed: python story.py (docs/python.md)."""
import sys

import minerva


def main() -> int:
    path = sys.argv[1] if len(sys.argv) > 1 else None  # None: the demo model
    prompt = sys.argv[2] if len(sys.argv) > 2 else "Tell me a story."
    try:
        with minerva.Model(path) as model:
            for chunk in model.generate(prompt, stream=True, max_tokens=512):
                print(chunk, end="", flush=True)
            print()
    except minerva.Error as e:
        print("%s: %s" % (e.name, e), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
