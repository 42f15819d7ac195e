"""What findings say: which line, and why, where a rule has more than one sentence for it."""

from __future__ import annotations

EVIDENCE = [
    ("DF401", "a loader without a sampler", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        for b in torch.utils.data.DataLoader(d):
            m(b).backward()
        """, 3, "E", "it has no sampler"),
    ("DF401", "a sampler that deals to one process", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        for b in torch.utils.data.DataLoader(d, sampler=Mine(d)):
            m(b).backward()
        """, 3, "E", "no branch deals by rank"),
    ("DF403", "a share by hand", """
        import torch
        lines = lines[args.local_rank::torch.distributed.get_world_size()]
        for b in torch.utils.data.DataLoader(lines):
            m(b).backward()
        """, 2, "W", "lines[args.local_rank::torch.distributed.get_world_size()] keeps this rank's share only"),  # noqa: E501
    ("DF501", "kept from all ranks", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.local_rank == -1:
                evaluate(m, d)
        """, 7, "E", "no rank reaches evaluate() in line 8"),
    ("DF501", "kept to rank 0", """
        import torch
        def evaluate(model, data):
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch)
        def main(args):
            if args.local_rank in [-1, 0]:
                evaluate(m, d)
        """, 7, "E", "rank 0 alone reaches evaluate() in line 8"),
    ("DF501", "an evaluation in place", """
        import torch
        for b in torch.utils.data.DataLoader(d):
            m(b).backward()
        if args.local_rank in [-1, 0]:
            m.eval()
            for b in torch.utils.data.DataLoader(d):
                m(b)
        """, 4, "E", "rank 0 alone reaches the evaluation in line 6"),
    ("DF503", "a list that could be gathered", """
        import torch
        from torch.utils.data.distributed import DistributedSampler
        def evaluate(model, d):
            out = []
            model.eval()
            for b in torch.utils.data.DataLoader(d, sampler=DistributedSampler(d)):
                out.append(model(b))
            return out
        """, 6, "E", "evaluate() scores this rank's part and gathers nothing"),
    ("DF503", "what is printed", """
        import torch
        from torch.utils.data.distributed import DistributedSampler
        def evaluate(model, d):
            model.eval()
            for b in torch.utils.data.DataLoader(d, sampler=DistributedSampler(d)):
                print(model(b))
        """, 5, "E", "evaluate() scores this rank's part and what it keeps cannot be added up"),
    ("DF406", "a file of one example, which another rank may have as well", """import os, torch
class Sounds(torch.utils.data.Dataset):
    def __getitem__(self, number):
        return self.spectrum(self.names[number])
    def spectrum(self, name):
        cache = name + ".pt"
        if os.path.exists(cache):
            return torch.load(cache)
        torch.save(found, cache)
        """, 9, "W",
        "another rank looks for it in line 8, unless each rank has examples of its own"),
    ("DF601", "a checkpoint of all ranks", """
        import torch
        torch.save(m, path)
        """, 2, "E", "every rank writes it"),
    ("DF601", "a checkpoint of rank 0", """
        import torch
        if args.local_rank in [-1, 0]:
            torch.save(m, path)
        """, 3, "N", "written in place"),
    ("DF601", "a name with the score of a model that is wrapped for a rank's card", """
        import torch
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
        score = evaluate(args, model)
        torch.save(m, "best-{}.pt".format(score))
        """, 4, "E", "every rank writes it"),
    ("DF606", "the arguments", """
        import torch
        args = parser.parse_args()
        torch.save(args, path)
        x = torch.load(path)
        """, 4, "E", "line 3 saves args, the parsed arguments"),
    ("DF606", "something or other", """
        import torch
        torch.save(x, path)
        x = torch.load(path)
        """, 3, "W", "line 2 saves x"),
    ("DF606", "a model", """
        import torch
        x = Model.from_pretrained(n)
        torch.save(x, path)
        x = torch.load(path)
        """, 4, "E", "line 3 saves x, a whole model"),
    ("DF606", "an array", """
        import torch
        import numpy as np
        x = np.zeros(3)
        torch.save(x, path)
        x = torch.load(path)
        """, 5, "E", "line 4 saves x, a NumPy array"),
    ("DF606", "a data set by its name", """
        import torch
        x = MyDataset(3)
        torch.save(x, path)
        x = torch.load(path)
        """, 4, "E", "line 3 saves x, a MyDataset"),
    ("DF606", "a class of the script's own", """
        import torch
        class Lines: pass
        x = Lines()
        torch.save(x, path)
        x = torch.load(path)
        """, 5, "E", "line 4 saves x, a Lines"),
    ("DF702", "a limit", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            args.max_steps = len(loader)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    global_step += 1
                    if global_step > args.max_steps:
                        break
        """, 4, "W", "args.max_steps counts micro-batches, global_step optimizer steps"),
    ("DF702", "a schedule", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            s = get_schedule(o, len(loader))
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    pass
                    if step > 3:
                        break
        """, 4, "W", "s counts micro-batches, the scheduler optimizer steps"),
    ("DF703", "the loop's own number", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                (m(b) * share(args.n)).backward()
                if step % args.n == 0:
                    o.step()

        """, 7, "W", "micro-batches left at the end of an epoch are stepped in the next one"),
    ("DF703", "another number", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                (m(b) * share(args.n)).backward()
                if done % args.n == 0:
                    o.step()

        """, 7, "W", "done % args.n is not the number of the micro-batch in its epoch"),
    ("DF703", "another rest", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            pass
            for step, batch in enumerate(loader):
                (m(b) * share(args.n)).backward()
                if done % args.n == 1:
                    o.step()

        """, 7, "N", "what it counts is not the loop's own step number"),
    ("DF506", "the loss of one rank", """
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
                    total = model(batch)
                    if total > 3:
                        break
        """, 14, "E", "each rank decides by its own total in line 13"),
    ("DF506", "rank 0 leaves", """
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
                    if args.rank == 0 and global_step > 3:
                        break
        """, 13, "E", "only rank 0 can leave the training loop here"),
    ("DF506", "the others leave", """
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
                    if args.rank > 0 and global_step > 3:
                        break
        """, 13, "E", "only the other ranks can leave the training loop here"),
    ("DF602", "a file", """
        def f(p):
            with open(p, 'w') as g:
                g.write('x')
        """, 2, "W", "every rank writes it"),
    ("DF602", "a file that is read again", """
        def f(a):
            p = a.x
            with open(p, 'w') as g:
                g.write('x')
            score(p)
        """, 3, "W", "every rank writes it and reads it"),
    ("DF602", "a file that is read again in a loop", """
        def f(a):
            for x in y(a):
                p = a.x
                with open(p, 'w') as g:
                    g.write('x')
                score(p)
        """, 4, "W", "every rank writes it and reads it; ranks may pass it unequally often"),
    ("DF404", "a seed by rank", """
        import random
        random.seed(args.seed + args.local_rank)
        random.shuffle(d)
        """, 3, "W", "line 2 seeds each rank differently before random.shuffle"),
    ("DF404", "a seed by rank behind it", """
        import random
        random.shuffle(d)
        random.seed(args.seed + args.local_rank)
        """, 2, "N", "random.shuffle is the same on all ranks only under one seed"),
    ("DF404", "a seed of all, and a rank in something else", """
        import random
        set_seed(args.seed)
        args.x += args.rank
        args.seed = 3
        random.shuffle(d)
        """, 5, "N", "random.shuffle is the same on all ranks only under one seed"),
    ("DF404", "a seed made anew", """
        import random
        args.seed = args.seed + args.rank
        random.shuffle(d)
        """, 3, "W", "line 2 seeds each rank differently before random.shuffle"),
    ("DF404", "a seed by rank, and a function that nobody calls", """
        import random
        args.seed += args.rank
        def f():
            random.shuffle(d)
        """, 4, "N", "random.shuffle is the same on all ranks only under one seed"),
    ("DF404", "a seed by rank, and a function that is called behind it", """
        import random
        args.seed += args.rank
        def f():
            random.shuffle(d)
        f()
        """, 4, "W", "line 2 seeds each rank differently before random.shuffle"),
    ("DF404", "a seed by rank, and a function that is called before it", """
        import random
        f()
        args.seed += args.rank
        def f():
            random.shuffle(d)
        """, 5, "N", "random.shuffle is the same on all ranks only under one seed"),
]  # fmt: skip
