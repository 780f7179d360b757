"""Two networks that are trained in turn, each with its optimizer, and an average of the generator's weights."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

generator = nn.Sequential(
    nn.ConvTranspose2d(32, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()
).cuda()
critic = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4)).cuda()
average = AveragedModel(generator, multi_avg_fn=get_ema_multi_avg_fn(0.999))
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
loss = nn.BCEWithLogitsLoss()
for _step in range(4):
    real = torch.randn(8, 3, 8, 8, device="cuda")
    fake = generator(torch.randn(8, 32, 1, 1, device="cuda"))
    of_critic.zero_grad()
    on_real, on_fake = critic(real).flatten(), critic(fake.detach()).flatten()
    (loss(on_real, torch.ones_like(on_real)) + loss(on_fake, torch.zeros_like(on_fake))).backward()
    of_critic.step()
    of_generator.zero_grad()
    judged = critic(fake).flatten()
    loss(judged, torch.ones_like(judged)).backward()
    of_generator.step()
    average.update_parameters(generator)
