"""Commands whose help has options in groups, and examples; both are read when help is asked for."""

from __future__ import annotations

import click


class HelpfulCommand(click.Command):
    """A command with its options in groups, and examples below them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of a group under its title."""
        from .help_texts import GROUPS

        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        groups = GROUPS.get(path_of(ctx), {})
        grouped = {name for names in groups.values() for name in names}
        rest = [one for one in options if not grouped & {*one.opts}]
        for title, names in groups.items():
            here = [one for one in options if {*one.opts} & {*names}]
            write_rows(ctx, formatter, title, here)
        write_rows(ctx, formatter, "Other options" if groups else "Options", rest)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples: what each is for, and below it what is typed, on one line."""
        from .help_texts import EXAMPLES

        if examples := EXAMPLES.get(path_of(ctx)):
            with formatter.section("Examples"):
                for purpose, words in examples:
                    margin = " " * formatter.current_indent
                    formatter.write(f"{margin}# {purpose}\n{margin}{words}\n")
        super().format_epilog(ctx, formatter)


class HelpfulGroup(HelpfulCommand, click.Group):
    """A group of commands with such a help."""

    command_class = HelpfulCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options and the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def path_of(ctx: click.Context) -> str:
    """The words of a command without the program's: `recipes show`."""
    words = []
    while ctx.parent is not None:
        words.append(ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(reversed(words))


def write_rows(
    ctx: click.Context, formatter: click.HelpFormatter, title: str, options: list[click.Option]
) -> None:
    """Write the options of a group that are not hidden."""
    rows = [row for one in options if (row := one.get_help_record(ctx))]
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)
