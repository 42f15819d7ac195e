"""Near misses about the data that ranks get."""

from __future__ import annotations

UNTOUCHED: list[tuple[str, str, str]] = [
    ("DF401", "data that only iterates, over a share that it finds itself", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        class Lines(torch.utils.data.IterableDataset):
            def __init__(self):
                self.size = -1
            def __iter__(self):
                self.size = torch.distributed.get_world_size()
                self.rank = torch.distributed.get_rank()
                for i, line in enumerate(open("lines.txt")):
                    if i % self.size != self.rank:
                        continue
                    yield line
        for b in torch.utils.data.DataLoader(Lines(), batch_size=4):
            model(b).backward()
        """),
    ("DF401", "lines that are dealt by hand", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        lines = lines[args.local_rank::torch.distributed.get_world_size()]
        for b in torch.utils.data.DataLoader(lines):
            model(b).backward()
        """),
    ("DF401", "shares that a class deals by a number of its own", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        class Trainer:
            def __init__(self, cfg):
                self.number = cfg.local_rank if cfg.local_rank != -1 else 0

            def train(self, data, model):
                for b in Shards(data, shard_id=self.number, num_shards=self.count):
                    model(b).backward()
        """),
    ("DF401", "a data set that is sharded by its library", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        data = data.shard(torch.distributed.get_world_size(), torch.distributed.get_rank())
        for b in torch.utils.data.DataLoader(data, shuffle=True):
            model(b).backward()
        """),
    ("DF401", "batches that each rank draws by a seed of its own", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        torch.manual_seed(7 + torch.distributed.get_rank())
        for step in range(9):
            model(data[torch.randint(9, (4,))]).backward()
        """),
    ("DF103", "a rank's card on equal machines", """
        import torch
        torch.distributed.init_process_group('gloo')
        args.gpu = args.rank % torch.cuda.device_count()
        cards = torch.cuda.device_count()
        device = torch.distributed.get_rank() % cards
        """),
    ("DF401", "no group", """
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """),
    ("DF401", "batches that ranks share", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        class SharedBatchSampler: pass
        batches = SharedBatchSampler(data)
        for batch in torch.utils.data.DataLoader(data, batch_sampler=batches):
            model(batch).backward()
        """),
    ("DF401", "a test of cards or of ranks that ranks pass", """
        import torch
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        if args.local_rank == -1:
            args.n_gpu = torch.cuda.device_count()
        else:
            torch.distributed.init_process_group('gloo')
            args.n_gpu = 1
        if args.n_gpu > 1 or args.local_rank != -1:
            sampler = DistributedSampler(data)
        else:
            sampler = RandomSampler(data)
        for batch in DataLoader(data, sampler=sampler):
            model(batch).backward()
        """),
    ("DF401", "something deals by rank, and the loop is through an unknown", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        sampler = torch.utils.data.distributed.DistributedSampler(data)
        for batch in batches(sampler):
            model(batch).backward()
        """),
    ("DF402", "a loader without ranks", """
        for epoch in range(9):
            for batch in torch.utils.data.DataLoader(data):
                model(batch).backward()
        """),
    ("DF402", "set_epoch around the call", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(model, loader):
            for batch in loader:
                model(batch).backward()
        sampler = DistributedSampler(data)
        batches = DataLoader(data, sampler=sampler)
        for epoch in range(9):
            sampler.set_epoch(epoch)
            train(model, batches)
        """),
    ("DF402", "a loader that deals to nobody, and no epochs", """
        import torch
        for batch in torch.utils.data.DataLoader(data):
            model(batch).backward()
        """),
    ("DF402", "an unknown loader, and no sampler", """
        for batch in batches:
            model(batch).backward()
        """),
    ("DF403", "no training and no evaluation", """
        lines = lines[args.local_rank::torch.distributed.get_world_size()]
        """),
    ("DF403", "the part of a tensor that is a rank's", """
        import torch
        ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        for batch in torch.utils.data.DataLoader(data):
            whole = gathered(model(batch))
            own = torch.chunk(whole, ranks)[rank] + whole.chunk(ranks)[rank]
            own.sum().backward()
        """),
    ("DF403", "nothing is dealt", """
        import torch
        for batch in torch.utils.data.DataLoader(data):
            if args.local_rank == -1:
                x = 1
            else:
                x = 2
            model(batch).backward()
        """),
    ("DF404", "rank 0 alone", """
        import random
        if args.local_rank in [-1, 0]:
            random.shuffle(data)
        """),
    ("DF404", "a numbers' own shuffle", """
        import random
        data.shuffle()
        random.random()
        """),
    ("DF404", "a collator", """
        import random
        def collate_pairs(x):
            return random.sample(x, 2)
        """),
    ("DF405", "a pool of somebody else's", """
        from mine import Pool
        pool = Pool(8)
        """),
    ("DF406", "another path, another function, and looked for behind it", """
        import pickle
        def a(path):
            pickle.load(open(other, 'rb'))
            pickle.dump(x, open(path, 'wb'))
            pickle.load(open(path, 'rb'))
        def b(path):
            pickle.load(open(path, 'rb'))
        """),
    ("DF406", "opened to be written, both times", """
        import pickle
        def a(path):
            open(path, 'w')
            open(path, 'ab')
            pickle.dump(x, open(path, 'wb'))
        """),
    ("DF406", "looked for by rank 0 alone", """
        import pickle
        def a(path):
            if args.local_rank in [-1, 0]:
                pickle.load(open(path, 'rb'))
            pickle.dump(x, open(path, 'wb'))
        """),
    ("DF406", "appended, or opened by others, or with a result", """
        import gzip, pickle
        def a(path):
            pickle.load(open(path, 'rb'))
            pickle.dump(x, open(path, 'ab'))
            pickle.dump(x, gzip.open(path, 'wb'))
            pickle.dump(x, open(path))
            y = pickle.dump(x, open(path, 'wb'))
            pickle.dump(x)
        """),
    ("DF406", "a checkpoint with options, or somebody's own", """
        import torch
        def a(path):
            torch.load(path)
            torch.save(x, path, pickle_protocol=4)
            mine.save(x, path)
            torch.save(x)
        """),
]  # fmt: skip
REPORTED: list[tuple[str, str, str]] = [
    ("DF401", "a shuffle that is computed", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        for b in torch.utils.data.DataLoader(data, 4, shuffle=wants(args)):
            model(b).backward()
        """),
    ("DF401", "batches drawn by one seed", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        torch.manual_seed(7)
        torch.distributed.barrier(torch.distributed.get_rank())
        for step in range(9):
            model(data[torch.randint(9, (4,))]).backward()
        """),
    ("DF401", "data that only iterates", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        class Lines(torch.utils.data.IterableDataset):
            def __iter__(self):
                yield from open("lines.txt")
        lines = Lines()
        for b in torch.utils.data.DataLoader(lines, batch_size=4):
            model(b).backward()
        """),
    ("DF401", "a share that is always the first", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        for b in Shards(data, shard_id=0, num_shards=torch.distributed.get_world_size()):
            model(b).backward()
        """),
    ("DF401", "a random sampler of the script's own", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        from torch.utils.data import DataLoader
        from samplers import RandomSampler
        for batch in DataLoader(data, sampler=RandomSampler(data)):
            model(batch).backward()
        """),
    ("DF401", "one sampler or another", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)

        from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
        sampler = RandomSampler(data) if args.shuffle else SequentialSampler(data)
        for batch in DataLoader(data, sampler=sampler):
            model(batch).backward()
        """),
    ("DF402", "a cycle", """
        from itertools import cycle
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        loader = cycle(DataLoader(data, sampler=DistributedSampler(data)))
        for step in range(9):
            model(next(loader)).backward()
        """),
    ("DF402", "a loader of ranks, and no epochs", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler as Deal
        def train(data):
            for batch in DataLoader(data, sampler=Deal(data)):
                model(batch).backward()
        """),
    ("DF402", "two callers, of which neither alone counts", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(model, loader):
            for batch in loader:
                model(batch).backward()
        batches = DataLoader(data, sampler=DistributedSampler(data))
        for epoch in range(9):
            train(model, batches)
        train(model, batches)
        """),
    ("DF402", "a loader for each turn of a loop that does not count", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        while not done():
            loader = DataLoader(data, sampler=DistributedSampler(data))
            for batch in loader:
                model(batch).backward()
        """),
    ("DF402", "a loop that does not count", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        loader = DataLoader(data, sampler=DistributedSampler(data))
        for part in parts:
            for batch in loader:
                model(batch).backward()
        """),
    ("DF405", "as many as there are cores", """
        import multiprocessing
        pool = multiprocessing.Pool()
        """),
    ("DF405", "results in no order", """
        import multiprocessing
        pool = multiprocessing.Pool(8)
        pool.imap_unordered(f, x)
        """),
    ("DF406", "a name that is in the way", """
        import pickle
        def a(path, file):
            pickle.load(open(path, 'rb'))
            pickle.dump(file, open(path, 'wb'))
        """),
]  # fmt: skip
REPAIRED: list[tuple[str, str, str, str]] = [
    ("DF402", "steps that ranks may count apart", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        loader = DataLoader(data, sampler=DistributedSampler(data))
        while step < steps:
            for batch in loader:
                loss = model(batch)
                loss.backward()
                if loss.item() < 9:
                    step += 1
        """, """
        @@ -4,2 +4,4 @@
         while step < steps:
        +    if isinstance(loader.sampler, DistributedSampler):
        +        loader.sampler.set_epoch(loader.sampler.epoch + 1)
             for batch in loader:
        """),
    ("DF401", "a shuffle by position", """
        import torch
        from torch.utils.data.distributed import DistributedSampler
        torch.distributed.init_process_group('gloo', timeout=t)
        for b in torch.utils.data.DataLoader(data, 4, True):
            model(b).backward()
        """, """
        @@ -3,3 +3,3 @@
         torch.distributed.init_process_group('gloo', timeout=t)
        -for b in torch.utils.data.DataLoader(data, 4, True):
        +for b in torch.utils.data.DataLoader(data, 4, not torch.distributed.is_initialized(), sampler=None if not torch.distributed.is_initialized() else DistributedSampler(data)):
             model(b).backward()
        """),  # noqa: E501
    ("DF401", "a shuffle that an option asks for", """
        import torch
        from torch.utils.data.distributed import DistributedSampler
        torch.distributed.init_process_group('gloo', timeout=t)
        for b in torch.utils.data.DataLoader(data, 4, shuffle=args.shuffle):
            model(b).backward()
        """, """
        @@ -3,3 +3,3 @@
         torch.distributed.init_process_group('gloo', timeout=t)
        -for b in torch.utils.data.DataLoader(data, 4, shuffle=args.shuffle):
        +for b in torch.utils.data.DataLoader(data, 4, shuffle=args.shuffle and not torch.distributed.is_initialized(), sampler=None if not torch.distributed.is_initialized() else DistributedSampler(data, shuffle=args.shuffle)):
             model(b).backward()
        """),  # noqa: E501
    ("DF401", "a sampler that is none yet", """
        import torch
        from torch.utils.data.distributed import DistributedSampler
        torch.distributed.init_process_group('gloo', timeout=t)
        def batches(data):
            sampler = None
            return torch.utils.data.DataLoader(
                data, shuffle=(sampler is None), batch_size=3, sampler=sampler)
        for b in batches(data):
            model(b).backward()
        """, """
        @@ -6,3 +6,3 @@
             return torch.utils.data.DataLoader(
        -        data, shuffle=(sampler is None), batch_size=3, sampler=sampler)
        +        data, shuffle=(not torch.distributed.is_initialized()), batch_size=3, sampler=None if not torch.distributed.is_initialized() else DistributedSampler(data))
         for b in batches(data):
        """),  # noqa: E501
    ("DF401", "in order", """
        import torch
        torch.distributed.init_process_group('gloo', timeout=t)
        for batch in torch.utils.data.DataLoader(data, 4):
            model(batch).backward()
        """, """
        @@ -1,4 +1,5 @@
         import torch
        +from torch.utils.data.distributed import DistributedSampler
         torch.distributed.init_process_group('gloo', timeout=t)
        -for batch in torch.utils.data.DataLoader(data, 4):
        +for batch in torch.utils.data.DataLoader(data, 4, sampler=None if not torch.distributed.is_initialized() else DistributedSampler(data, shuffle=False)):
             model(batch).backward()
        """),  # noqa: E501
    ("DF401", "a random sampler, and a name that is imported", """
        import torch
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        parser.add_argument("--local_rank")
        args = parser.parse_args()
        torch.distributed.init_process_group('gloo')
        sampler = RandomSampler(data)
        for batch in DataLoader(data, sampler=sampler):
            model(batch).backward()
        """, """
        @@ -6,3 +6,3 @@
         torch.distributed.init_process_group('gloo')
        -sampler = RandomSampler(data)
        +sampler = RandomSampler(data) if not torch.distributed.is_initialized() else DistributedSampler(data)
         for batch in DataLoader(data, sampler=sampler):
        """),  # noqa: E501
    ("DF402", "a class's loader, from a method that is called once an epoch", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        class Trainer:
            def __init__(self, data):
                self.loader = DataLoader(data, sampler=DistributedSampler(data))
            def epoch(self):
                for batch in self.loader:
                    self.model(batch).backward()
            def train(self):
                for epoch in range(9):
                    self.epoch()
        """, """
        @@ -11,2 +11,4 @@
                 for epoch in range(9):
        +            if isinstance(self.loader.sampler, DistributedSampler):
        +                self.loader.sampler.set_epoch(epoch)
                     self.epoch()
        """),
    ("DF402", "under the name of a module", """
        import torch
        loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.distributed.DistributedSampler(data))
        for epoch in trange(9):
            for batch in loader:
                model(batch).backward()
        """,  # noqa: E501
     """
        @@ -1,4 +1,7 @@
         import torch
        +from torch.utils.data.distributed import DistributedSampler
         loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.distributed.DistributedSampler(data))
         for epoch in trange(9):
        +    if isinstance(loader.sampler, torch.utils.data.distributed.DistributedSampler):
        +        loader.sampler.set_epoch(epoch)
             for batch in loader:
        """),  # noqa: E501
    ("DF405", "by name", """
        from multiprocessing import Pool
        pool = Pool(processes=args.cores)
        """, """
        @@ -1,2 +1,3 @@
         from multiprocessing import Pool
        -pool = Pool(processes=args.cores)
        +import os
        +pool = Pool(processes=max(1, args.cores // int(os.environ.get('LOCAL_WORLD_SIZE', 1))))
        """),
    ("DF406", "a path's own open", """
        import os
        import pickle
        import torch
        def a(path):
            path.read_bytes()
            pickle.dump(x, open(path, 'wb'))
        """, """
        @@ -3,4 +3,18 @@
         import torch
        +
        +
        +def is_main_process(): ...
        +
        +
        +def write_on_main(path, mode, write): ...
         def a(path):
             path.read_bytes()
        -    pickle.dump(x, open(path, 'wb'))
        +    write_on_main(path, 'wb', lambda file: pickle.dump(x, file))
        """),
    ("DF406", "rank 0 waits, and not the others", """
        import os
        import pickle, torch
        def a(args, path):
            if args.local_rank == 0:
                torch.distributed.barrier()
            pickle.load(open(path, 'rb'))
            pickle.dump(x, open(path, 'wb'))
        """, """
        @@ -2,2 +2,16 @@
         import pickle, torch
        +
        +
        +def is_main_process(): ...
        +
        +
        +def write_on_main(path, mode, write): ...
         def a(args, path):
        @@ -6,2 +20,2 @@
             pickle.load(open(path, 'rb'))
        -    pickle.dump(x, open(path, 'wb'))
        +    write_on_main(path, 'wb', lambda file: pickle.dump(x, file))
        """),
    ("DF406", "the others wait behind it", """
        import os
        import pickle, torch
        def a(args, path):
            pickle.load(open(path, 'rb'))
            if args.local_rank > 0:
                torch.distributed.barrier()
            pickle.dump(x, open(path, 'wb'))
        """, """
        @@ -2,2 +2,16 @@
         import pickle, torch
        +
        +
        +def is_main_process(): ...
        +
        +
        +def write_on_main(path, mode, write): ...
         def a(args, path):
        @@ -6,2 +20,2 @@
                 torch.distributed.barrier()
        -    pickle.dump(x, open(path, 'wb'))
        +    write_on_main(path, 'wb', lambda file: pickle.dump(x, file))
        """),
    ("DF406", "the others wait in one of two callers", """
        import os
        import pickle, torch
        def a(path):
            pickle.load(open(path, 'rb'))
            pickle.dump(x, open(path, 'wb'))
        def b(args):
            if args.local_rank > 0:
                torch.distributed.barrier()
            a("x")
        def c(args):
            a("y")
        """, """
        @@ -2,5 +2,19 @@
         import pickle, torch
        +
        +
        +def is_main_process(): ...
        +
        +
        +def write_on_main(path, mode, write): ...
         def a(path):
             pickle.load(open(path, 'rb'))
        -    pickle.dump(x, open(path, 'wb'))
        +    write_on_main(path, 'wb', lambda file: pickle.dump(x, file))
         def b(args):
        """),
]  # fmt: skip
