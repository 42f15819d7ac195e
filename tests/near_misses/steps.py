"""Near misses about steps and their numbers."""

from __future__ import annotations

UNTOUCHED: list[tuple[str, str, str]] = [
    ("DF701", "no batch flag", """
        parser.add_argument('--size', type=int)
        args = parser.parse_args()
        for b in DataLoader(d, batch_size=args.size):
            m(b).backward()
        """),
    ("DF703", "a schedule that steps every few batches", """
        import torch
        torch.distributed.init_process_group('gloo')
        def train(args, loader, model, optimizer, scheduler):
            for step, batch in enumerate(loader):
                loss = model(batch)
                loss.backward()
                optimizer.step()
                if (step + 1) % args.every == 0:
                    scheduler.step()
        """),
    ("DF703", "a plateau of another name", """
        import torch
        torch.distributed.init_process_group('gloo')
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            if (step + 1) % args.every == 0:
                plateau.step(loss)
        """),
    ("DF702", "no accumulation", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data)
            args.max_steps = len(loader) * 3
            for batch in loader:
                model(batch).backward()
                optimizer.step()
                global_step += 1
                if global_step > args.max_steps:
                    break
        """),
    ("DF702", "a horizon that is divided by the ranks", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            total = len(data) // args.size // torch.distributed.get_world_size()
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                scheduler.step()
        """),
    ("DF702", "a horizon of the global batch, which a loader shares out", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, data, model):
            size = args.size // torch.distributed.get_world_size()
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=size)
            total = len(data) // args.size
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                scheduler.step()
        """),
    ("DF702", "a horizon of data that every rank takes whole", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, batch_size=args.size)
            total = len(data) // args.size
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                scheduler.step()
        """),
    ("DF702", "a number of batches that goes to no schedule", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            batches = len(data) // args.size
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, 9)
            for batch in loader:
                model(batch).backward()
                scheduler.step()
        """),
    ("DF702", "a horizon of other data", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            total = len(other) // args.size
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                scheduler.step()
        """),
    ("DF702", "a number that no step is compared with", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            batches = len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """),
    ("DF702", "the length of the data", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.max_steps = len(data) // 4
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """),
    ("DF702", "the length of another loader", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.max_steps = len(dev_loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """),
    ("DF702", "another counter", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.max_steps = len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    seen += 2
                    if global_step > args.max_steps:
                        break
        """),
    ("DF702", "what is asked is not the counter's modulo", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            every = len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if every % global_step == 0:
                        break
        """),
    ("DF702", "rounded down, in a loader that drops its last batch", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
            args.max_steps = len(loader) // args.accumulation
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """),
    ("DF702", "divided with a rest", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.max_steps = len(loader) / args.accumulation
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """),
    ("DF702", "divided by more than the accumulation", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.max_steps = len(loader) // (2 * args.accumulation)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """),
    ("DF702", "a schedule of another function", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        def other(loader):
            get_schedule(o, len(loader))
        """),
    ("DF702", "examples times something else", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size, drop_last=True)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            n = len(data) * args.epochs
            for batch in loader:
                model(batch).backward()
        """),  # noqa: E501
    ("DF702", "another length times the ranks", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size, drop_last=True)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            n = len(dev) * world
            m = size(data) * world
            k = data * world
            for batch in loader:
                model(batch).backward()
        """),  # noqa: E501
    ("DF702", "examples times the ranks, where nothing deals", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, batch_size=args.size, drop_last=True)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            n = len(data) * world
            for batch in loader:
                model(batch).backward()
        """),
    ("DF702", "examples by the batch, where the last one is not dropped", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            n = len(data) // args.size
            for batch in loader:
                model(batch).backward()
        """),
    ("DF702", "examples by something else", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size, drop_last=True)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            n = len(data) // args.epochs
            m = len(dev) // args.size
            k = len(dev) * world // 3
            j = len(data) / args.size
            for batch in loader:
                model(batch).backward()
        """),  # noqa: E501
    ("DF702", "a batch that the ranks share, under a name", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size, drop_last=True)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            n = 3
            per = args.size * world
            m = n // per
            for batch in loader:
                model(batch).backward()
        """),  # noqa: E501
    ("DF703", "no accumulation", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                model(batch).backward()
                optimizer.step()

        """),
    ("DF703", "an endless loop that counts its own steps", """
        def train(args, loaders, model):
            step = 0
            while True:
                step += 1
                model(next(loaders)).backward()
                if step % args.accumulation == 0:
                    optimizer.step()
        """),
    ("DF703", "synchronised already, by no_sync", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            model = torch.nn.parallel.DistributedDataParallel(model)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                with model.no_sync():
                    (model(batch) * loss_share(step, loader, args.n)).backward()
                if last_micro_step:
                    optimizer.step()

        """),
    ("DF703", "a quotient that does not go back", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                loss = model(batch)
                mean = loss / args.n
                half = loss / 2
                rest = args.n / loss
                loss.backward()
                if last_micro_step:
                    optimizer.step()

        """),
    ("DF703", "quotients of two names at once", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                loss = total = model(batch) / args.n
                loss.backward()
                if last_micro_step:
                    optimizer.step()

        """),
    ("DF703", "two wrappers of other functions", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                (model(batch) * loss_share(step, loader, args.n)).backward()
                if last_micro_step:
                    optimizer.step()

        def other(m):
            model = torch.nn.parallel.DistributedDataParallel(m)
            self.model = torch.nn.parallel.DistributedDataParallel(m)
        """),
    ("DF704", "a rank", """
        parser.add_argument('--local_rank')
        args = parser.parse_args()
        args.local_rank = 3
        """),
    ("DF704", "another object", """
        parser.add_argument('--x')
        args = parser.parse_args()
        other.x = 3
        """),
    ("DF704", "no flag", """
        parser.add_argument('--x')
        args = parser.parse_args()
        args.y = 3
        """),
    ("DF704", "in a loop, a try or a while", """
        parser.add_argument('--x')
        args = parser.parse_args()
        for args.y in z:
            args.x = 3
        try:
            args.x = 3
        except E:
            pass
        while z:
            args.x = 3
        """),
    ("DF704", "made of itself by way of three others", """
        parser.add_argument('--x')
        args = parser.parse_args()
        args.a = args.x
        args.b = args.a
        args.c = args.b
        args.x = args.c
        """),
    ("DF706", "a parameter or a builtin", """
        def train(bar, model):
            for b in torch.utils.data.DataLoader(d):
                model(b).backward()
            bar.close()
            x.y.close()
            z = w.close()
        """),
    ("DF706", "read behind it is one number", """
        def train(model):
            for b in torch.utils.data.DataLoader(d):
                loss = model(b)
                loss = loss.mean()
                x = loss.item()
                y = other.item()
                loss.backward()
        """),
    ("DF706", "read before it is made anew", """
        def train(model):
            for b in torch.utils.data.DataLoader(d):
                x = loss.item()
                loss = model(b)
                loss = loss.mean()
                loss.backward()
        """),
    ("DF706", "a mean of another axis", """
        def train(model):
            for b in torch.utils.data.DataLoader(d):
                loss = model(b)
                x = loss.item()
                loss = loss.mean(0)
                loss.backward()
        """),
    ("DF706", "another call than the model's", """
        from torch.utils.data import DataLoader
        def evaluate(model, data):
            model.eval()
            for batch in DataLoader(data):
                model(batch)
        def train(model, data):
            for batch in DataLoader(data):
                net(batch).backward()
                evaluate(model, data)
        """),
    ("DF706", "an evaluation in place, behind the training", """
        from torch.utils.data import DataLoader
        def train(model, data):
            for batch in DataLoader(data):
                model(batch).backward()
            model.eval()
            for batch in DataLoader(dev):
                model(batch)
        """),
]  # fmt: skip
REPORTED: list[tuple[str, str, str]] = [
    ("DF703", "an endless loop that counts twice", """
        def train(args, loaders, model):
            step = 0
            while True:
                step += 1
                model(next(loaders)).backward()
                step += 1
                if step % args.accumulation == 0:
                    optimizer.step()
        """),
    ("DF703", "an endless loop that counts in twos", """
        def train(args, loaders, model):
            step = 0
            while True:
                step += 2
                model(next(loaders)).backward()
                if step % args.accumulation == 0:
                    optimizer.step()
        """),
    ("DF703", "one off, counted behind the test", """
        def train(args, loaders, model):
            step = 0
            while args.more:
                model(next(loaders)).backward()
                if (step + 2) % args.accumulation == 0:
                    optimizer.step()
                done += 1
        """),
    ("DF703", "another rest than none", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                model(batch).backward()
                if step % args.accumulation == 1:
                    optimizer.step()

        """),
    ("DF703", "any rest but none", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                model(batch).backward()
                if step % args.accumulation != 0:
                    pass
                if (step + 1) % args.accumulation < 1:
                    optimizer.step()

        """),
    ("DF703", "a loop without a number, and the name is taken", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            step = 3
            for batch in loader:
                model(batch).backward()
                if (done + 1) % args.accumulation == 0:
                    optimizer.step()

        """),
    ("DF703", "a cycle that is asked for more than its next", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            loader = cycle(loader)
            for step in range(args.steps):
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                print(len(loader))
        """),
    ("DF703", "a cycle of a range that begins elsewhere", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            loader = cycle(loader)
            for step in range(3, args.steps):
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                pass
        """),
    ("DF703", "a cycle that is numbered by enumerate", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            loader = cycle(loader)
            for step, _ in enumerate(range(args.steps)):
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                pass
        """),
    ("DF703", "a cycle of what has no name", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            loader = cycle(torch.utils.data.DataLoader(data))
            for step in range(args.steps):
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                pass
        """),
    ("DF703", "a cycle in an object", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.loader = cycle(loader)
            for step in range(args.steps):
                batch = next(args.loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                pass
        """),
    ("DF703", "a cycle of an endless loop", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            loader = cycle(loader)
            while True:
                step = 1
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                pass
        """),
    ("DF704", "in a function that a test defines", """
        parser.add_argument('--x')
        args = parser.parse_args()
        if z:
            def f():
                args.x = 3
        """),
]  # fmt: skip
REPAIRED: list[tuple[str, str, str, str]] = [
    ("DF702", "steps at which something is done", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            every = len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step % every == 0:
                        break
        """, """
        @@ -3,3 +3,4 @@
             loader = torch.utils.data.DataLoader(data, batch_size=4)
        -    every = len(loader)
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    every = steps_per_epoch
             for step, batch in enumerate(loader):
        """),
    ("DF702", "a loader that drops its last batch", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
            args.max_steps = len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """, """
        @@ -3,3 +3,4 @@
             loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
        -    args.max_steps = len(loader)
        +    steps_per_epoch = len(loader) // args.accumulation  # optimizer steps
        +    args.max_steps = steps_per_epoch
             for step, batch in enumerate(loader):
        """),
    ("DF702", "two of them share one line", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.max_steps = 2 * len(loader)
            every = len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps or global_step % every == 0:
                        break
        """, """
        @@ -3,4 +3,5 @@
             loader = torch.utils.data.DataLoader(data, batch_size=4)
        -    args.max_steps = 2 * len(loader)
        -    every = len(loader)
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    args.max_steps = 2 * steps_per_epoch
        +    every = steps_per_epoch
             for step, batch in enumerate(loader):
        """),
    ("DF702", "in a branch behind the loader", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            if args.epochs:
                args.max_steps = args.epochs * len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """, """
        @@ -3,4 +3,5 @@
             loader = torch.utils.data.DataLoader(data, batch_size=4)
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
             if args.epochs:
        -        args.max_steps = args.epochs * len(loader)
        +        args.max_steps = args.epochs * steps_per_epoch
             for step, batch in enumerate(loader):
        """),
    ("DF702", "the same loader by another name", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            again = loader
            args.max_steps = len(again)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """, """
        @@ -4,3 +4,4 @@
             again = loader
        -    args.max_steps = len(again)
        +    steps_per_epoch = -(-len(again) // args.accumulation)  # optimizer steps
        +    args.max_steps = steps_per_epoch
             for step, batch in enumerate(loader):
        """),
    ("DF702", "examples by the batch, where the last one is dropped", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size, drop_last=True)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            n = len(data) // args.size
            for batch in loader:
                model(batch).backward()
        """,  # noqa: E501
     """
        @@ -6,3 +6,3 @@
             world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
        -    n = len(data) // args.size
        +    n = len(loader)
             for batch in loader:
        """),
    ("DF702", "a step counter in a schedule of another method", """
        import torch
        class Trainer:
            def plan(self):
                total = len(self.loader) * 3
                self.schedule = get_schedule(self.o, total)
            def fit(self):
                self.loader = torch.utils.data.DataLoader(d)
                for step, batch in enumerate(self.loader):
                    self.model(batch).backward()
                    if (step + 1) % self.args.n == 0:
                        self.o.step()
        """, """
        @@ -3,3 +3,4 @@
             def plan(self):
        -        total = len(self.loader) * 3
        +        steps_per_epoch = -(-len(self.loader) // self.args.n)  # optimizer steps
        +        total = steps_per_epoch * 3
                 self.schedule = get_schedule(self.o, total)
        """),
    ("DF702", "a loader that is made behind what counts it in a loop", """
        import torch
        def train(args, data, model):
            loader = None
            for part in args.parts:
                if loader:
                    args.max_steps = len(loader)
                loader = torch.utils.data.DataLoader(data, batch_size=4)
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    if (step + 1) % args.n == 0:
                        optimizer.step()
                        global_step += 1
                        if global_step > args.max_steps:
                            break
        """, """
        @@ -5,3 +5,4 @@
                 if loader:
        -            args.max_steps = len(loader)
        +            steps_per_epoch = -(-len(loader) // args.n)  # optimizer steps
        +            args.max_steps = steps_per_epoch
                 loader = torch.utils.data.DataLoader(data, batch_size=4)
        """),
    ("DF703", "clipped under a test of its own", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                model(batch).backward()
                if args.clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()

        """, """
        @@ -5,6 +5,8 @@
             for step, batch in enumerate(loader):
        +        last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                 model(batch).backward()
                 if args.clip:
        -            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        -        if (step + 1) % args.accumulation == 0:
        +            if last_micro_step:
        +                torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "clipped under the same test", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()

        """, """
        @@ -5,6 +5,7 @@
             for step, batch in enumerate(loader):
        +        last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "a number that is taken", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            step = 3
            for number, batch in enumerate(loader):
                model(batch).backward()
                if (number + 1) % args.accumulation == 0:
                    optimizer.step()

        """, """
        @@ -5,4 +5,5 @@
             for number, batch in enumerate(loader):
        +        last_micro_step = (number + 1) % args.accumulation == 0 or number + 1 == len(loader)
                 model(batch).backward()
        -        if (number + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),  # noqa: E501
    ("DF703", "a loss in an expression, a numbered loop from one", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader, 1):
                loss = (a if b else c) / args.n
                mean = loss / args.n
                half = loss / 2
                loss.backward()
                if step % args.n == 0:
                    optimizer.step()

        """, """
        @@ -1,2 +1,11 @@
         import torch
        +
        +
        +def loss_share(step, loader, accumulation): ...
         def train(args, data, model):
        @@ -5,3 +14,4 @@
             for step, batch in enumerate(loader, 1):
        -        loss = (a if b else c) / args.n
        +        last_micro_step = step % args.n == 0 or step == len(loader)
        +        loss = (a if b else c) * loss_share(step - 1, loader, args.n)
                 mean = loss / args.n
        @@ -9,3 +19,3 @@
                 loss.backward()
        -        if step % args.n == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "dropped batches in a loop with an else", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
            pass
            for step, batch in enumerate(loader):
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
            else:
                print()

        """, """
        @@ -5,4 +5,5 @@
             for step, batch in enumerate(loader):
        +        last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "dropped batches, counted from one", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
            pass
            for step, batch in enumerate(loader, 1):
                model(batch).backward()
                if step % args.accumulation == 0:
                    optimizer.step()

        """, """
        @@ -5,4 +5,7 @@
             for step, batch in enumerate(loader, 1):
        +        if step - 1 >= len(loader) // args.accumulation * args.accumulation:
        +            break  # too few are left for an optimizer step: drop_last
        +        last_micro_step = step % args.accumulation == 0
                 model(batch).backward()
        -        if step % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "the wrapper that a caller hands over", """
        import torch
        def train(args, data, net, other):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                net(batch).backward()
                if last_micro_step:
                    optimizer.step()

        def main(args):
            model = torch.nn.parallel.DistributedDataParallel(m)
            train(args, data, model, plain)
        """, """
        @@ -6,2 +6,3 @@
                 last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
        +        net.require_backward_grad_sync = last_micro_step
                 net(batch).backward()
        """),
    ("DF703", "a cycle of another name than its loader", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            batches = cycle(loader)
            for step in range(args.steps):
                batch = next(batches)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                pass
        """, """
        @@ -2,2 +2,8 @@
         from itertools import cycle
        +
        +
        +def micro_steps(optimizer_steps, loader, accumulation): ...
         def train(args, data, model):
        @@ -5,6 +11,8 @@
             batches = cycle(loader)
        -    for step in range(args.steps):
        +    for step in range(micro_steps(args.steps, loader, args.accumulation)):
        +        micro_step = step % len(loader)
        +        last_micro_step = (micro_step + 1) % args.accumulation == 0 or micro_step + 1 == len(loader)
                 batch = next(batches)
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),  # noqa: E501
    ("DF703", "a cycle of a bar", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            loader = cycle(loader)
            for step in tqdm(range(args.steps)):
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                pass
        """, """
        @@ -2,9 +2,17 @@
         from itertools import cycle
        +
        +
        +def micro_steps(optimizer_steps, loader, accumulation): ...
         def train(args, data, model):
             loader = torch.utils.data.DataLoader(data, batch_size=4)
        -    loader = cycle(loader)
        -    for step in tqdm(range(args.steps)):
        -        batch = next(loader)
        +    batches = cycle(loader)
        +    for step in tqdm(range(micro_steps(args.steps, loader, args.accumulation))):
        +        micro_step = step % len(loader)
        +        last_micro_step = (micro_step + 1) % args.accumulation == 0 or micro_step + 1 == len(loader)
        +        batch = next(batches)
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),  # noqa: E501
    ("DF703", "a loss that a line of its own divides", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                loss = model(batch)
                loss = loss / args.n
                loss.backward()
                if last_micro_step:
                    optimizer.step()

        """, """
        @@ -1,2 +1,11 @@
         import torch
        +
        +
        +def loss_share(step, loader, accumulation): ...
         def train(args, data, model):
        @@ -7,3 +16,3 @@
                 loss = model(batch)
        -        loss = loss / args.n
        +        loss = loss * loss_share(step, loader, args.n)
                 loss.backward()
        """),
]  # fmt: skip
