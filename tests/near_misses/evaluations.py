"""Near misses about evaluations, and who reaches what."""

from __future__ import annotations

UNTOUCHED: list[tuple[str, str, str]] = [
    ("DF501", "a test of no rank", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.do_eval:
                evaluate(m, d)
        """),
    ("DF503", "a loader that is trained on too", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def run(args, model, data):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=2)
            for batch in loader:
                model(batch).backward()
            model.eval()
            for batch in loader:
                print(model(batch))
        """),
    ("DF504", "no wrapper anywhere", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def train(model):
            for b in torch.utils.data.DataLoader(d):
                model(b).backward()
        """),
    ("DF504", "a model that evaluates itself", """
        import torch
        from torch.utils.data import DataLoader
        class Net(torch.nn.Module):
            def scores(self, data):
                self.eval()
                for batch in DataLoader(data):
                    with torch.no_grad():
                        print(self(batch))
        model = torch.nn.parallel.DistributedDataParallel(Net())
        """),
    ("DF504", "unwrapped where there is a module", """
        import torch
        wrapped = torch.nn.parallel.DistributedDataParallel(net)
        def evaluate(model, data):
            if hasattr(model, 'module'):
                model = model.module
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """),
    ("DF505", "no group", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """),
    ("DF505", "rank 0 alone", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        if torch.distributed.get_rank() == 0:
            evaluate(m, d)
        """),
    ("DF505", "shuffled", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data, shuffle=True):
                model(batch)
        """),
    ("DF505", "by a sampler of its own", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data, sampler=Mine(data)):
                model(batch)
        """),
    ("DF505", "batches of a sampler", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data, batch_sampler=s):
                model(batch)
        """),
    ("DF505", "one of two samplers", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        from torch.utils.data import DataLoader, SequentialSampler
        def evaluate(model, data):
            sampler = SequentialSampler(data) if args.x else Mine(data)
            model.eval()
            for batch in DataLoader(data, sampler=sampler):
                model(batch)
        """),
    ("DF505", "trained on too", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        from torch.utils.data import DataLoader
        def run(model, data):
            loader = DataLoader(data)
            for batch in loader:
                model(batch).backward()
            model.eval()
            for batch in loader:
                print(model(batch))
        """),
    ("DF506", "a test of rank 0 in a program that makes no group", """
        import torch
        def train(args, model):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
                if args.rank == 0:
                    break
        """),
    ("DF506", "a reduce of something else", """
        import functools
        def main(args):
            if args.local_rank == 0:
                functools.reduce(f, x)
                comm.all_reduce(x)
        """),
    ("DF506", "a function that may gather, or not", """
        import torch
        def gather(x):
            if args.gather:
                torch.distributed.all_gather_object([], x)
            for y in x:
                torch.distributed.all_gather_object([], y)
        def main(args):
            if args.local_rank in [-1, 0]:
                gather(1)
        """),
    ("DF506", "a rank for which nobody waits", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and global_step > 9:
                        print()
        """),
]  # fmt: skip
REPORTED: list[tuple[str, str, str]] = [
    ("DF503", "what each batch adds to is gathered in the loop, by a method", """
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        class Trainer:
            def whole(self, scores, labels):
                parts = [torch.zeros_like(scores) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, scores)
                others = [torch.zeros_like(labels) for _ in range(dist.get_world_size())]
                dist.all_gather(others, labels)
                return torch.cat(parts), torch.cat(others)
            def test(self, model, loader):
                model.eval()
                truth, right = [], 0
                with torch.no_grad():
                    for x, y in loader:
                        scores = model(x)
                        scores, y = self.whole(scores, y)
                        truth.extend(y.tolist())
                        right += (scores.argmax(1) == y).sum().item()
                return truth, right
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
        Trainer().test(model, loader)
        """),
    ("DF501", "the others do something else", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.local_rank in [-1, 0]:
                evaluate(m, d)
            else:
                wait()
        """),
    ("DF501", "rank 0 of a group alone, not a lone process", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.local_rank == 0:
                evaluate(m, d)
        """),
    ("DF501", "rank 1 beside another test", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.do_eval and torch.distributed.get_rank() == 1:
                evaluate(m, d)
        """),
    ("DF501", "rank 0 of a group alone beside another test", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.do_eval and args.local_rank == 0:
                evaluate(m, d)
        """),
    ("DF501", "one of two tests will do", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.local_rank == 0 or args.local_rank == -1 and args.x:
                evaluate(m, d)
        """),
    ("DF502", "what is read is not called", """
        def main(args):
            if args.local_rank in [-1, 0]:
                writer = make()
            print(writer)
        """),
    ("DF502", "a writer's result is kept", """
        def main(args):
            if args.local_rank in [-1, 0]:
                writer = make()
            x = writer.add_scalar(1)
        """),
    ("DF502", "a writer in an argument", """
        def main(args):
            if args.local_rank in [-1, 0]:
                writer = make()
            log.add_scalar(writer)
        """),
    ("DF503", "a data set among others", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def evaluate(args, model, data):
            loader = DataLoader(data, sampler=DistributedSampler(*data), batch_size=2)
            model.eval()
            for batch in loader:
                print(model(batch))
        """),
    ("DF505", "not shuffled in so many words, and nothing is kept", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data, 4, False):
                model(batch)
        """),
    ("DF506", "an exit with a value", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and global_step > 9:
                        return model
        """),
    ("DF506", "an exit whose test asks somebody", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and done(global_step):
                        break
        """),
    ("DF506", "an exit with another way for its else", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and global_step > 9:
                        break
                    else:
                        wait()
        """),
    ("DF506", "an exit of rank 0 whatever else", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0:
                        break
        """),
    ("DF506", "a barrier among other statements", """
        import torch
        def main(args):
            if args.local_rank == 0:
                load()
                torch.distributed.barrier()
        """),
    ("DF506", "a barrier with an else", """
        import torch
        def main(args):
            if args.local_rank == 0:
                torch.distributed.barrier()
            else:
                load()
        """),
    ("DF506", "a barrier under more than the rank", """
        import torch
        def main(args):
            if args.local_rank == 0 and args.x:
                torch.distributed.barrier()
        """),
    ("DF506", "an imported barrier", """
        from torch.distributed import barrier
        def main(args):
            if args.local_rank == 0:
                barrier()
        """),
    ("DF506", "a gather is no barrier", """
        import torch
        def main(args):
            if args.local_rank == 0:
                torch.distributed.all_reduce(x)
        """),
    ("DF506", "a function that gathers in a group, through another", """
        import torch
        def inner(x):
            if torch.distributed.is_initialized():
                torch.distributed.all_gather_object([], x)
        def outer(x):
            inner(x)
        def main(args):
            if args.local_rank in [-1, 0]:
                outer(1)
        """),
    ("DF506", "an exit of rank 0 with its evaluation", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and global_step > 9:
                        evaluate(model)
                        break

        def evaluate(model):
            model.eval()
            for batch in DataLoader(dev):
                model(batch)
        """),
    ("DF506", "an exit in the middle of its block", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and global_step > 9:
                        if global_step > 10:
                            break
                        save(model)
        """),
    ("DF506", "an exit with a walrus", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and (n := global_step):
                        break
        """),
]  # fmt: skip
REPAIRED: list[tuple[str, str, str, str]] = [
    ("DF501", "two ranks' tests in one", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.local_rank in [-1, 0] and args.do_eval and args.rank <= 0:
                evaluate(m, d)
                evaluate(m, e)
        """, """
        @@ -6,3 +6,3 @@
         def main(args):
        -    if args.local_rank in [-1, 0] and args.do_eval and args.rank <= 0:
        +    if args.do_eval:
                 evaluate(m, d)
        """),
    ("DF502", "a writer that rank 0 made", """
        import torch
        def main(args):
            if args.local_rank in [-1, 0]:
                writer = make()
            for x in y:
                writer.add_scalar(x)
        """, """
        @@ -1,2 +1,7 @@
         import torch
        +
        +
        +def is_main_process(): ...
         def main(args):
        @@ -5,2 +10,3 @@
             for x in y:
        -        writer.add_scalar(x)
        +        if is_main_process():
        +            writer.add_scalar(x)
        """),
    ("DF503", "a lone process deals by rank too", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def evaluate(args, model, data):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=2)
            logits = []
            model.eval()
            for batch in loader:
                logits.append(model(batch))
            return logits
        """, """
        @@ -4,3 +4,3 @@
         def evaluate(args, model, data):
        -    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=2)
        +    loader = DataLoader(data, sampler=torch.utils.data.SequentialSampler(data), batch_size=2)
             logits = []
        """),  # noqa: E501
    ("DF504", "another name is given its own module, and the model another value", """
        import torch
        wrapped = torch.nn.parallel.DistributedDataParallel(net)
        def evaluate(model, data):
            bare = data.module
            model = model.half()
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """, """
        @@ -5,2 +5,3 @@
             model = model.half()
        +    model = getattr(model, 'module', model)
             model.eval()
        """),
    ("DF504", "two loops are put in eval mode once", """
        import torch
        wrapped = torch.nn.parallel.DistributedDataParallel(net)
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        """, """
        @@ -3,2 +3,3 @@
         def evaluate(model, data):
        +    model = getattr(model, 'module', model)
             model.eval()
        """),
    ("DF504", "an object's model", """
        import torch
        class Trainer:
            def train(self):
                self.model = torch.nn.parallel.DistributedDataParallel(self.net)
                for x in torch.utils.data.DataLoader(data):
                    self.model(x).backward()
            def test(self, other):
                self.model.eval()
                for batch in torch.utils.data.DataLoader(data):
                    out = self.model(batch), other.model(batch), model
        """, """
        @@ -8,3 +8,4 @@
                 self.model.eval()
        +        eval_model = getattr(self.model, 'module', self.model)
                 for batch in torch.utils.data.DataLoader(data):
        -            out = self.model(batch), other.model(batch), model
        +            out = eval_model(batch), other.model(batch), model
        """),
    ("DF504", "the name for the bare model is taken already by this very line", """
        import torch
        model = torch.nn.parallel.DistributedDataParallel(net)
        model(x).backward()
        eval_model = getattr(model, 'module', model)
        model.eval()
        for batch in torch.utils.data.DataLoader(data):
            out = model(batch)
        """, """
        @@ -6,2 +6,2 @@
         for batch in torch.utils.data.DataLoader(data):
        -    out = model(batch)
        +    out = eval_model(batch)
        """),
    ("DF505", "no sampler, and a list", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        def evaluate(model, data):
            loader = torch.utils.data.DataLoader(data, 4, shuffle=False)
            logits = []
            model.eval()
            for batch in loader:
                logits.append(model(batch))
            return logits
        """, """
        @@ -1,6 +1,36 @@
         import torch
        +import pickle
         torch.distributed.init_process_group('gloo', timeout=t)

        +
        +def shard_of_batches(dataset, batch_size): ...
        +
        +
        +def gathered(value): ...
        +
         def evaluate(model, data):
        -    loader = torch.utils.data.DataLoader(data, 4, shuffle=False)
        +    loader = torch.utils.data.DataLoader(data, 4, shuffle=False, sampler=None if not torch.distributed.is_initialized() else shard_of_batches(data, 4))
             logits = []
        @@ -9,2 +39,3 @@
                 logits.append(model(batch))
        +    logits = gathered(logits)
             return logits
        """),  # noqa: E501
    ("DF506", "an exit behind other statements of its block", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            torch.distributed.init_process_group('gloo')
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
            global_step = 0
            for epoch in range(9):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    global_step += 1
                    if args.rank == 0 and global_step > 9:
                        save(model)
                        break
        """, """
        @@ -13,2 +13,3 @@
                         save(model)
        +            if torch.distributed.is_initialized() and global_step > 9:
                         break
        """),
]  # fmt: skip
